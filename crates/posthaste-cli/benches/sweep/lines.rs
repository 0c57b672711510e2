//! A bare client of a broker that speaks in lines of text.

use std::io::BufRead as _;

use anyhow::{Result, bail};

use crate::pipelined;

/// Messages published and not yet acknowledged.
const WINDOW: u64 = 4_096;

/// Publishes messages on one connection; returns when each has its answer: a line that begins like
/// this.
pub(crate) fn publish(
    port: u16,
    greeting: &str,
    answer: &'static str,
    messages: impl Iterator<Item = String>,
) -> Result<()> {
    let mut line = String::new();
    let next: pipelined::Next = Box::new(move |reader| {
        line.clear();
        if reader.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        if line.starts_with("-") {
            bail!("the broker refused a message: {line}");
        }
        Ok(Some(line.starts_with(answer)))
    });
    pipelined::publish(port, greeting.as_bytes(), WINDOW, next, messages)
}
