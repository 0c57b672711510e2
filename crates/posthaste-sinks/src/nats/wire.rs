//! The server's half of the NATS protocol, as far as a publisher meets it.

use serde::Deserialize;

/// The longest line: a list of a large cluster's servers.
const LINE_BYTES_MAX: usize = 1 << 20;
/// The first letters of all that a server says.
const FIRST_LETTERS: &[u8] = b"IPMH+-";

/// Something that the server says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Incoming {
    /// The server and its wishes: said first, and again when they change.
    Info(ServerInfo),
    /// It asks whether we are there.
    Ping,
    /// It is there.
    Pong,
    /// It took something; said only to those who ask for it.
    Ok,
    /// It refuses something, in these words.
    Error(String),
    /// A message for us.
    Message(Message),
}

/// The server's side of a connection.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct ServerInfo {
    /// The server's name; its id where it was given none.
    #[serde(default)]
    pub(super) server_name: String,
    /// The most bytes of a message, with its headers.
    #[serde(default)]
    pub(super) max_payload: usize,
    /// Whether it knows headers.
    #[serde(default)]
    pub(super) headers: bool,
    /// Whether the connection goes on with TLS.
    #[serde(default)]
    pub(super) tls_required: bool,
    /// Whether it may.
    #[serde(default)]
    pub(super) tls_available: bool,
}

/// A message for us.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Message {
    /// Its subject.
    pub(super) subject: String,
    /// The number in the first line of its headers.
    pub(super) status: Option<u16>,
    /// Its payload.
    pub(super) payload: Vec<u8>,
}

/// Bytes that are not NATS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Malformed;

/// Reads the first thing that the bytes say, and answers its length; none: it has not come whole.
pub(super) fn read(bytes: &[u8]) -> Result<Option<(Incoming, usize)>, Malformed> {
    if bytes
        .first()
        .is_some_and(|first| !FIRST_LETTERS.contains(first))
    {
        return Err(Malformed);
    }
    let searched = &bytes[..bytes.len().min(LINE_BYTES_MAX)];
    let Some(end) = searched.windows(2).position(|pair| pair == b"\r\n") else {
        return match bytes.len() < LINE_BYTES_MAX {
            true => Ok(None),
            false => Err(Malformed),
        };
    };
    let line = std::str::from_utf8(&bytes[..end]).map_err(|_| Malformed)?;
    let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
    let behind = end + 2;
    let incoming = match word {
        "INFO" => Incoming::Info(serde_json::from_str(rest).map_err(|_| Malformed)?),
        "PING" => Incoming::Ping,
        "PONG" => Incoming::Pong,
        "+OK" => Incoming::Ok,
        "-ERR" => Incoming::Error(rest.trim_matches(['\'', ' ']).to_owned()),
        "MSG" | "HMSG" => return read_message(word == "HMSG", rest, bytes, behind),
        _ => return Err(Malformed),
    };
    Ok(Some((incoming, behind)))
}

/// `SUBJECT SID [REPLY] [HEADER BYTES] BYTES`, and behind the line so many bytes.
fn read_message(
    has_headers: bool,
    rest: &str,
    bytes: &[u8],
    start: usize,
) -> Result<Option<(Incoming, usize)>, Malformed> {
    let mut words: Vec<&str> = rest.split_ascii_whitespace().collect();
    let number = |word: Option<&str>| -> Result<usize, Malformed> {
        let word = word.ok_or(Malformed)?;
        word.parse().map_err(|_| Malformed)
    };
    let total = number(words.pop())?;
    let header = match has_headers {
        true => number(words.pop())?,
        false => 0,
    };
    if !matches!(words.len(), 2 | 3) || header > total {
        return Err(Malformed);
    }
    let end = start.checked_add(total).ok_or(Malformed)?;
    let whole = end.checked_add(2).ok_or(Malformed)?;
    if bytes.len() < whole {
        return Ok(None);
    }
    if &bytes[end..whole] != b"\r\n" {
        return Err(Malformed);
    }
    let message = Message {
        subject: words[0].to_owned(),
        status: status(&bytes[start..start + header]),
        payload: bytes[start + header..end].to_vec(),
    };
    Ok(Some((Incoming::Message(message), whole)))
}

/// The number behind the version in the first line of headers: `NATS/1.0 503`.
fn status(headers: &[u8]) -> Option<u16> {
    let line = headers.split(|&byte| byte == b'\r').next()?;
    let (_, status) = std::str::from_utf8(line).ok()?.split_once(' ')?;
    status.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(subject: &str, status: Option<u16>, payload: &[u8]) -> Incoming {
        Incoming::Message(Message {
            subject: subject.to_owned(),
            status,
            payload: payload.to_vec(),
        })
    }

    #[test]
    fn each_thing_that_a_server_says_is_read() {
        let info =
            br#"INFO {"server_id":"X","server_name":"n","headers":true,"max_payload":1048576} "#;
        let info = [&info[..], b"\r\n"].concat();
        for (bytes, incoming) in [
            (
                &info[..],
                Incoming::Info(ServerInfo {
                    server_name: "n".to_owned(),
                    max_payload: 1 << 20,
                    headers: true,
                    tls_required: false,
                    tls_available: false,
                }),
            ),
            (b"PING\r\n", Incoming::Ping),
            (b"PONG\r\n", Incoming::Pong),
            (b"+OK\r\n", Incoming::Ok),
            (
                b"-ERR 'Authorization Violation'\r\n",
                Incoming::Error("Authorization Violation".to_owned()),
            ),
            (b"MSG a.1 1 2\r\n{}\r\n", message("a.1", None, b"{}")),
            (
                b"MSG a 1 reply 4\r\na\r\nb\r\n",
                message("a", None, b"a\r\nb"),
            ),
            (
                b"HMSG a 1 16 16\r\nNATS/1.0 503\r\n\r\n\r\n",
                message("a", Some(503), b""),
            ),
            (
                b"HMSG a 1 20 21\r\nNATS/1.0\r\nb: 404\r\n\r\nx\r\n",
                message("a", None, b"x"),
            ),
        ] {
            let behind = [bytes, b"PONG"].concat();
            assert_eq!(read(&behind), Ok(Some((incoming, bytes.len()))));
            for end in 0..bytes.len() {
                assert_eq!(read(&bytes[..end]), Ok(None), "{end} of {bytes:?}");
            }
        }
    }

    #[test]
    fn other_bytes_are_refused() {
        for bytes in [
            &b"HTTP/1.1 400 Bad Request\r\n"[..],
            b"\x15\x03\x03",
            b"INFO {\r\n",
            b"MSG a 1\r\n",
            b"MSG a 1 x\r\n",
            b"MSG a 1 1\r\nabc",
            b"MSG a 1 18446744073709551615\r\n",
            b"HMSG a 1 9 8\r\n",
        ] {
            assert_eq!(read(bytes), Err(Malformed), "{bytes:?}");
        }
    }
}
