//! A relay below systemd, or a manager that listens as systemd does.

use std::{io::ErrorKind, os::unix::net::UnixDatagram, path::Path, time::Duration};

use posthaste_testkit::process::Running;

use crate::harness::{LIMIT, World};

/// The socket of a service manager.
struct Manager(UnixDatagram);

impl Manager {
    fn at(path: &Path) -> Self {
        let manager = Self(UnixDatagram::bind(path).unwrap());
        manager.0.set_read_timeout(Some(LIMIT)).unwrap();
        manager
    }

    fn next(&self) -> String {
        let mut room = [0; 1024];
        let length = self.0.recv(&mut room).expect("a message of the relay");
        String::from_utf8_lossy(&room[..length])
            .trim_end()
            .to_owned()
    }
}

#[test]
fn a_service_manager_is_told_of_start_progress_and_stop() {
    let world = World::with_outbox();
    let path = world.path("notify");
    let manager = Manager::at(&path);
    let relay = ["relay", "--from", "sqlite:shop.db", "--to", "null:"];
    let mut command = world.command(&relay);
    let watchdog = Duration::from_millis(300);
    command
        .env("NOTIFY_SOCKET", &path)
        .env("WATCHDOG_USEC", watchdog.as_micros().to_string());
    let relay = Running::start(&mut command);
    assert_eq!(manager.next(), "READY=1");
    // It has nothing to do.
    for _ in 0..3 {
        assert_eq!(manager.next(), "WATCHDOG=1");
    }
    relay.terminate();
    let mut said = manager.next();
    while said == "WATCHDOG=1" {
        said = manager.next();
    }
    assert_eq!(said, "STOPPING=1");
    relay.wait(LIMIT).expect_status(0);
}

/// Sends until the socket takes no more. Returns how many messages it holds.
fn fill(path: &Path) -> usize {
    let mut messages = 0;
    // A sender may meet a limit of its own before the socket is full.
    loop {
        let sender = UnixDatagram::unbound().unwrap();
        sender.set_nonblocking(true).unwrap();
        let before = messages;
        loop {
            match sender.send_to(b"X=1", path) {
                Ok(_) => messages += 1,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => panic!("{error}"),
            }
        }
        if messages == before {
            return messages;
        }
    }
}

#[test]
fn a_service_manager_that_reads_nothing_holds_up_neither_events_nor_a_stop() {
    let world = World::with_outbox();
    let path = world.path("notify");
    let manager = Manager::at(&path);
    let messages = fill(&path);
    world.emit("orders", "1", "first");
    let start = || {
        let relay = ["relay", "--from", "sqlite:shop.db", "--to", "file:events"];
        Running::start(world.command(&relay).env("NOTIFY_SOCKET", &path))
    };
    let warning = "the service manager has read nothing";
    let relay = start();
    relay.wait_for_stderr(warning, LIMIT);
    assert_eq!(world.payloads("events"), ["first"]);
    relay.terminate();
    let ended = relay.wait(LIMIT).expect_status(0);
    assert_eq!(ended.stderr.matches(warning).count(), 1, "{ended}");

    // It is told as soon as it reads.
    let relay = start();
    relay.wait_for_stderr(warning, LIMIT);
    for _ in 0..messages {
        assert_eq!(manager.next(), "X=1");
    }
    assert_eq!(manager.next(), "READY=1");
    relay.terminate();
    relay.wait(LIMIT).expect_status(0);
}
