//! The output of a child process.

use std::{
    io::Read,
    sync::{Arc, Condvar, Mutex, PoisonError},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// The bytes of one output stream so far, and news of them.
pub(super) type Stream = Arc<(Mutex<Captured>, Condvar)>;

/// One output stream, read by a thread of its own so that the process never blocks on it.
#[derive(Debug)]
pub(super) struct Capture {
    pub(super) shared: Stream,
    reader: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
pub(super) struct Captured {
    pub(super) bytes: Vec<u8>,
    pub(super) closed: bool,
}

impl Capture {
    pub(super) fn start(mut stream: impl Read + Send + 'static) -> Self {
        let shared = Arc::new((Mutex::new(Captured::default()), Condvar::new()));
        let writing = Arc::clone(&shared);
        let reader = thread::spawn(move || {
            let mut buffer = [0; 8192];
            loop {
                // An error of a pipe means its end.
                let n = stream.read(&mut buffer).unwrap_or(0);
                let mut captured = writing.0.lock().unwrap_or_else(PoisonError::into_inner);
                captured.bytes.extend_from_slice(&buffer[..n]);
                captured.closed = n == 0;
                writing.1.notify_all();
                if n == 0 {
                    return;
                }
            }
        });
        Self {
            shared,
            reader: Some(reader),
        }
    }

    pub(super) fn text(&self) -> String {
        let captured = self.shared.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&captured.bytes).into_owned()
    }

    pub(super) fn read_to_end(&mut self) -> String {
        if let Some(reader) = self.reader.take() {
            reader.join().expect("read a stream");
        }
        self.text()
    }

    pub(super) fn wait_for(&self, text: &str, limit: Duration) -> Result<(), String> {
        let deadline = Instant::now() + limit;
        let mut captured = self.shared.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut searched = 0;
        loop {
            let fresh = &captured.bytes[searched..];
            if text.is_empty()
                || fresh
                    .windows(text.len())
                    .any(|part| part == text.as_bytes())
            {
                return Ok(());
            }
            if captured.closed {
                return Err("the stream ended without it".to_owned());
            }
            searched = captured.bytes.len().saturating_sub(text.len());
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(format!("not within {limit:?}"));
            }
            (captured, _) = self
                .shared
                .1
                .wait_timeout(captured, left)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}
