//! Requests of Kafka's protocol that the client library does not make.

use super::KafkaServer;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(30);
const CLIENT: &str = "posthaste-testkit";

impl KafkaServer {
    /// Sends one request past any proxy; `rest` is all behind the client's name. Answers what
    /// follows the length.
    pub(super) fn exchange(&self, request: i16, version: i16, rest: &[u8]) -> Vec<u8> {
        let exchange = || -> std::io::Result<Vec<u8>> {
            let mut stream = TcpStream::connect(self.direct())?;
            stream.set_read_timeout(Some(LIMIT))?;
            let name_length = i16::try_from(CLIENT.len()).expect("a short text");
            let correlation = 0_i32; // Of one request.
            let message = [
                &request.to_be_bytes()[..],
                &version.to_be_bytes(),
                &correlation.to_be_bytes(),
                &name_length.to_be_bytes(),
                CLIENT.as_bytes(),
                rest,
            ]
            .concat();
            let length = u32::try_from(message.len()).expect("a short request");
            stream.write_all(&[&length.to_be_bytes()[..], &message].concat())?;
            let mut length = [0; 4];
            stream.read_exact(&mut length)?;
            let length = usize::try_from(u32::from_be_bytes(length)).expect("an answer's length");
            let mut answer = vec![0; length];
            stream.read_exact(&mut answer)?;
            Ok(answer)
        };
        exchange().unwrap_or_else(|e| panic!("Kafka at {}: {e}", self.direct()))
    }
}
