//! The sink `stdout`: its fixture, and the promises of it alone.

mod fixture;

use std::{io::Read, process::Stdio, time::Duration};

use libtest_mimic::Trial;
use posthaste_testkit::process;

use crate::{child, lines};

pub(crate) use fixture::rows;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::test("stdout::speaks_on_the_real_stream", || {
            speaks_on_the_real_stream();
            Ok(())
        }),
        Trial::test("stdout::a_closed_pipe_is_said", || {
            a_closed_pipe_is_said();
            Ok(())
        }),
    ]
}

fn speaks_on_the_real_stream() {
    let mut command = child::command("speak", "stdout:", &[]);
    let finished = process::run(&mut command, Duration::from_secs(60)).expect_status(0);
    let payloads: Vec<_> = lines::parse_all(finished.stdout.as_bytes())
        .into_iter()
        .map(|event| event.payload.unwrap())
        .collect();
    assert_eq!(payloads, [b"0", b"1", b"2"]);
    assert!(finished.stderr.contains("check: Ok"), "{}", finished.stderr);
}

fn a_closed_pipe_is_said() {
    let mut child = child::command("speak", "stdout:", &[])
        .stdin(Stdio::piped())
        .stdout({
            let (reader, writer) = std::io::pipe().unwrap();
            drop(reader);
            writer
        })
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut said)
        .unwrap();
    assert!(child.wait().unwrap().success(), "{said}");
    assert!(said.contains("cause: Connection"), "{said}");
    assert!(said.contains("nobody reads standard output"), "{said}");
    assert!(said.contains("check: Err(Unavailable"), "{said}");
    assert!(!said.contains("Accepted"), "{said}");
}
