//! A client of the tests' own, which shares nothing with the sink.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

/// Bounds a hang, nothing more.
const LIMIT: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(5);

/// A connection. Calls block.
#[derive(Debug)]
pub struct RedisClient {
    stream: BufReader<TcpStream>,
}

/// The server's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// A word of the server's.
    Simple(String),
    /// A refusal.
    Error(String),
    /// A number.
    Number(i64),
    /// Bytes; none: there is no such value.
    Bytes(Option<Vec<u8>>),
    /// Several answers; none: there is no such value.
    List(Option<Vec<Reply>>),
}

/// An entry of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamEntry {
    /// The server's id of it.
    pub id: String,
    /// Fields and values in their order.
    pub fields: Vec<(String, Vec<u8>)>,
}

impl RedisClient {
    /// Connects to a port of 127.0.0.1.
    pub(super) fn connect(port: u16) -> Self {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("connect to Redis");
        stream.set_read_timeout(Some(LIMIT)).expect("a time limit");
        Self {
            stream: BufReader::new(stream),
        }
    }

    /// Asks, and answers the answer.
    ///
    /// # Panics
    ///
    /// When the server refuses, or is gone.
    pub fn ask(&mut self, words: &[&str]) -> Reply {
        match self.try_ask(words) {
            Reply::Error(refusal) => panic!("{words:?}: {refusal}"),
            reply => reply,
        }
    }

    /// Asks, and answers the answer, which may be a refusal.
    ///
    /// # Panics
    ///
    /// When the server is gone.
    pub fn try_ask(&mut self, words: &[&str]) -> Reply {
        let mut question = format!("*{}\r\n", words.len());
        for word in words {
            question += &format!("${}\r\n{word}\r\n", word.len());
        }
        let written = self.stream.get_mut().write_all(question.as_bytes());
        written.expect("write to Redis");
        self.reply()
    }

    /// The answer as a number.
    ///
    /// # Panics
    ///
    /// As [`Self::ask`], and when it is none.
    pub fn number(&mut self, words: &[&str]) -> i64 {
        match self.ask(words) {
            Reply::Number(number) => number,
            other => panic!("{words:?}: {other:?}"),
        }
    }

    /// Asks again and again, until the answer is a text that fits.
    ///
    /// # Panics
    ///
    /// As [`Self::ask`], and when the answer is no text, or does not fit within a minute.
    pub fn wait_until(&mut self, words: &[&str], fits: impl Fn(&str) -> bool) {
        let started = Instant::now();
        loop {
            let Reply::Bytes(Some(text)) = self.ask(words) else {
                panic!("{words:?}: no text");
            };
            let text = String::from_utf8_lossy(&text);
            if fits(&text) {
                return;
            }
            assert!(started.elapsed() < LIMIT, "{words:?}: {text}");
            thread::sleep(POLL);
        }
    }

    /// All entries of a stream, in its order.
    ///
    /// # Panics
    ///
    /// As [`Self::ask`].
    pub fn entries(&mut self, stream: &str) -> Vec<StreamEntry> {
        let Reply::List(Some(entries)) = self.ask(&["XRANGE", stream, "-", "+"]) else {
            panic!("no entries");
        };
        entries.into_iter().map(entry).collect()
    }

    fn reply(&mut self) -> Reply {
        let line = self.line();
        let (kind, rest) = line.split_at(1);
        let length = || usize::try_from(rest.parse::<i64>().expect("a length")).ok();
        match kind {
            "+" => Reply::Simple(rest.to_owned()),
            "-" => Reply::Error(rest.to_owned()),
            ":" => Reply::Number(rest.parse().expect("a number")),
            "$" => Reply::Bytes(length().map(|length| self.bytes(length))),
            "*" => Reply::List(length().map(|count| (0..count).map(|_| self.reply()).collect())),
            _ => panic!("Redis said: {line}"),
        }
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length + 2];
        self.stream.read_exact(&mut bytes).expect("read from Redis");
        bytes.truncate(length);
        bytes
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stream.read_line(&mut line).expect("read from Redis");
        assert!(line.ends_with('\n'), "Redis closed the connection: {line}");
        line.trim_end().to_owned()
    }
}

fn entry(reply: Reply) -> StreamEntry {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    let Reply::List(Some(parts)) = reply else {
        panic!("{reply:?}");
    };
    let [Reply::Bytes(Some(id)), Reply::List(Some(words))] = &parts[..] else {
        panic!("{parts:?}");
    };
    let words = words.iter().map(|word| match word {
        Reply::Bytes(Some(word)) => word.clone(),
        other => panic!("{other:?}"),
    });
    let words: Vec<_> = words.collect();
    let pairs = words.chunks(2);
    StreamEntry {
        id: text(id.clone()),
        fields: pairs
            .map(|pair| (text(pair[0].clone()), pair[1].clone()))
            .collect(),
    }
}
