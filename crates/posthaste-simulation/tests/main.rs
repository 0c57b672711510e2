//! Whole relays in virtual time: random histories, and rules left out.

mod rules;
mod simulation;
