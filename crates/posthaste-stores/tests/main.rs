//! The promises of single stores, beside the suite of all stores, in one binary.

mod faulty;
mod mysql_store;
mod postgres_store;
mod sqlite;
mod sqlite_retention;
