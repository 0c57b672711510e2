//! A bare client of a broker that answers each message on the same connection.

use std::{
    io::{BufReader, Write},
    net::{Ipv4Addr, TcpStream},
    sync::mpsc,
    time::Duration,
};

use anyhow::{Context, Result};

/// Bytes that are written at once.
const WRITE: usize = 64 << 10;

/// An id of each message's own.
pub(crate) fn id(number: u64) -> String {
    format!("0199d4f0-0000-7000-8000-{number:012x}")
}

/// Reads what the broker says next, and tells whether it is a message's answer; none at the end.
pub(crate) type Next = Box<dyn FnMut(&mut BufReader<TcpStream>) -> Result<Option<bool>> + Send>;

/// Publishes messages on one connection, up to `window` without an answer; returns when each has
/// one.
pub(crate) fn publish(
    port: u16,
    greeting: &[u8],
    window: u64,
    next: Next,
    messages: impl Iterator<Item = impl AsRef<[u8]>>,
) -> Result<()> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    stream.write_all(greeting)?;
    let (answered, answers) = mpsc::channel();
    let reader = BufReader::new(stream.try_clone()?);
    let reading = std::thread::spawn(move || count(reader, next, &answered));
    let (mut in_flight, mut unwritten) = (0, Vec::with_capacity(2 * WRITE));
    for message in messages {
        unwritten.extend_from_slice(message.as_ref());
        in_flight += 1;
        if unwritten.len() >= WRITE || in_flight >= window {
            stream.write_all(&unwritten)?;
            unwritten.clear();
        }
        while in_flight >= window {
            in_flight -= answers.recv().context("the broker ended the connection")?;
        }
        in_flight -= answers.try_iter().sum::<u64>();
    }
    stream.write_all(&unwritten)?;
    while in_flight > 0 {
        in_flight -= answers.recv().context("the broker ended the connection")?;
    }
    drop(answers);
    stream.shutdown(std::net::Shutdown::Both)?;
    // It ends with the connection, whatever it says then.
    drop(reading.join());
    Ok(())
}

/// Tells how many answers have come, those of a read together.
fn count(
    mut reader: BufReader<TcpStream>,
    mut next: Next,
    answered: &mpsc::Sender<u64>,
) -> Result<()> {
    let mut answers = 0;
    while let Some(is_answer) = next(&mut reader)? {
        answers += u64::from(is_answer);
        if reader.buffer().is_empty() && answers > 0 {
            answered.send(std::mem::take(&mut answers))?;
        }
    }
    Ok(())
}
