//! The library on real databases, in one binary.

mod emit_mysql;
mod emit_postgres;
mod emit_sqlite;
mod emit_types;
mod foreign_languages;
mod foreign_mysql;
mod limits;
mod mysql_table;
mod sql_contract;
mod support;
mod table_contract;
