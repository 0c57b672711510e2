//! A bare client of a broker that speaks in lines of text.

use std::{
    io::{BufRead, BufReader, Write},
    net::{Ipv4Addr, TcpStream},
    sync::mpsc,
    time::Duration,
};

use anyhow::{Context, Result, bail};

/// Messages published and not yet acknowledged.
const WINDOW: u64 = 4_096;
/// Bytes that are written at once.
const WRITE: usize = 64 << 10;

/// An id of each message's own.
pub(crate) fn id(number: u64) -> String {
    format!("0199d4f0-0000-7000-8000-{number:012x}")
}

/// Publishes messages on one connection; returns when each has its answer: a line that begins like
/// this.
pub(crate) fn publish(
    port: u16,
    greeting: &str,
    answer: &'static str,
    messages: impl Iterator<Item = String>,
) -> Result<()> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    stream.write_all(greeting.as_bytes())?;
    let (answered, answers) = mpsc::channel();
    let reader = BufReader::new(stream.try_clone()?);
    let reading = std::thread::spawn(move || count(reader, answer, &answered));
    let (mut in_flight, mut unwritten) = (0, Vec::with_capacity(2 * WRITE));
    for message in messages {
        unwritten.extend_from_slice(message.as_bytes());
        in_flight += 1;
        if unwritten.len() >= WRITE || in_flight >= WINDOW {
            stream.write_all(&unwritten)?;
            unwritten.clear();
        }
        while in_flight >= WINDOW {
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
    answer: &str,
    answered: &mpsc::Sender<u64>,
) -> Result<()> {
    let (mut line, mut answers) = (String::new(), 0);
    loop {
        line.clear();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        if line.starts_with("-") {
            bail!("the broker refused a message: {line}");
        }
        answers += u64::from(line.starts_with(answer));
        if reader.buffer().is_empty() && answers > 0 {
            answered.send(std::mem::take(&mut answers))?;
        }
    }
}
