//! The relay from outside, in one binary.

mod agreement;
mod health;
mod postgres;
mod postgres_events;
mod relay;
