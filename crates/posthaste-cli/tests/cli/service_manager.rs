//! A relay below systemd, or a manager that listens as systemd does.

use std::{os::unix::net::UnixDatagram, time::Duration};

use posthaste_testkit::process::Running;

use crate::harness::{LIMIT, World};

/// The socket of a service manager.
struct Manager(UnixDatagram);

impl Manager {
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
    let manager = Manager(UnixDatagram::bind(&path).unwrap());
    manager.0.set_read_timeout(Some(LIMIT)).unwrap();
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
