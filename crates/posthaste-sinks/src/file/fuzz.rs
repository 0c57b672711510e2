//! Bytes from outside: a file that a crash, or somebody else, has left behind.

use std::{fs, io::Write};

use bolero::check;
use posthaste_testkit::fuzz::iterations;

use super::{
    appender::{self, Appender},
    tail::{self, Tail},
};
use crate::{fuzz::AnyEvent, jsonl};

/// What is left when a write ends after any byte: the whole lines stay, of the last one nothing does, and
/// never is it taken for somebody else's.
#[test]
fn fuzz_torn_lines() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("events.jsonl");
    check!()
        .with_iterations(iterations(60))
        .with_type::<(Vec<AnyEvent>, u32, u32)>()
        .for_each(|(events, cut, longer)| {
            let mut lines = Vec::new();
            for event in events.iter().take(4) {
                let _ = jsonl::write_line(&mut lines, &event.record());
            }
            // The blocks in which the end is looked for are 64 KiB long.
            if let Some(end) = lines.len().checked_sub(2) {
                let longer = *longer as usize % 200_000;
                lines.splice(end..end, std::iter::repeat_n(b'x', longer));
            }
            lines.truncate(*cut as usize % (lines.len() + 1));
            fs::write(&path, &lines).unwrap();

            let whole = lines.iter().rposition(|&byte| byte == b'\n');
            let whole = whole.map_or(0, |at| at + 1);
            let start = whole as u64;
            let found = tail::inspect(&fs::File::open(&path).unwrap()).unwrap();
            match whole == lines.len() {
                true => assert_eq!(found, Tail::Whole),
                false => assert_eq!(found, Tail::Torn { start }),
            }
            appender::check(&path).unwrap();
            assert_eq!(fs::read(&path).unwrap(), lines, "a look changes nothing");
            drop(Appender::open(&path, None).unwrap());
            assert_eq!(fs::read(&path).unwrap(), &lines[..whole]);
        });
}

/// Of a file of any bytes nothing is cut but what may be the beginning of a line of ours.
#[test]
fn fuzz_tail() {
    check!()
        .with_iterations(iterations(400))
        .with_max_len(40)
        .for_each(|input: &[u8]| {
            // Half the time something that looks like ours.
            let contents = match input.split_first() {
                Some((0x80.., rest)) => {
                    [rest, b"\n", &jsonl::LINE_START[..rest.len() % 8]].concat()
                }
                _ => input.to_vec(),
            };
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(&contents).unwrap();
            let last = contents.rsplit(|&byte| byte == b'\n').next().unwrap();
            let expected = if last.is_empty() {
                Tail::Whole
            } else if last.starts_with(jsonl::LINE_START) || jsonl::LINE_START.starts_with(last) {
                Tail::Torn {
                    start: (contents.len() - last.len()) as u64,
                }
            } else {
                Tail::Foreign
            };
            assert_eq!(tail::inspect(&file).unwrap(), expected);
        });
}
