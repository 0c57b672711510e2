//! Ports for test servers that parallel test processes cannot take from one another.

use crate::cache::cache_dir;
use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};

/// How many ports below the ephemeral range are ours to choose from.
const RANGE: u16 = 12_000;

/// A free port of 127.0.0.1, reserved for this value's life by a lock file.
///
/// "Bind to port 0, read the number, close" races: the kernel may give the number to any outgoing
/// connection before the server binds it. So ports come from below the ephemeral range, where the
/// kernel never picks one by itself, and tests keep away from each other by file locks.
#[derive(Debug)]
pub struct Port {
    number: u16,
    _lock: File,
}

impl Port {
    /// Reserves a port on which nothing listens now.
    ///
    /// # Panics
    ///
    /// When no port of the range is free, or the lock folder cannot be written.
    #[must_use]
    pub fn reserve() -> Self {
        static NEXT: AtomicU16 = AtomicU16::new(0);
        let folder = cache_dir().join("ports");
        fs::create_dir_all(&folder).unwrap_or_else(|e| panic!("create {}: {e}", folder.display()));
        let first = ephemeral_start() - RANGE;
        // Processes start at different places, so that they seldom try the same ports.
        let offset = u16::try_from(std::process::id().wrapping_mul(61) % u32::from(RANGE)).unwrap();
        for _ in 0..RANGE {
            let step = NEXT.fetch_add(1, Ordering::Relaxed) % RANGE;
            let number = first + (offset + step) % RANGE;
            let lock = File::create(folder.join(number.to_string())).expect("create a port lock");
            if lock.try_lock().is_ok() && TcpListener::bind((Ipv4Addr::LOCALHOST, number)).is_ok() {
                return Self {
                    number,
                    _lock: lock,
                };
            }
        }
        panic!("no free port from {first} on");
    }

    /// The port's number.
    #[must_use]
    pub fn number(&self) -> u16 {
        self.number
    }
}

fn ephemeral_start() -> u16 {
    fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range")
        .ok()
        .and_then(|range| range.split_whitespace().next()?.parse().ok())
        .filter(|start| *start > RANGE + 1024)
        // Linux's own default, also below the range of macOS and the BSDs.
        .unwrap_or(32_768)
}

#[cfg(test)]
mod tests {
    use super::Port;

    #[test]
    fn ports_held_at_the_same_time_differ() {
        let mut numbers: Vec<_> = (0..50).map(|_| Port::reserve()).collect();
        numbers.sort_by_key(Port::number);
        assert!(
            numbers
                .windows(2)
                .all(|pair| pair[0].number() < pair[1].number())
        );
    }
}
