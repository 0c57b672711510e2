//! Bytes from outside: a file that a crash, or somebody else, has left behind.

use std::{fs, io::Write};

use bolero::check;
use posthaste_testkit::fuzz::iterations;

use super::{
    appender::{self, Appender},
    tail::{self, Tail},
};
use crate::{fuzz::AnyEvent, jsonl};

/// The rest when a write ends after any byte: the whole lines stay, of one that is torn nothing
/// does, and never is it taken for somebody else's.
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
            let repaired = if whole == lines.len() {
                assert_eq!(found, Tail::Whole);
                lines.clone()
            } else if is_json(&lines[whole..]) {
                let end = lines.len() as u64;
                assert_eq!(found, Tail::Unended { end });
                [&lines[..], b"\n"].concat()
            } else {
                assert_eq!(found, Tail::Torn { start });
                lines[..whole].to_vec()
            };
            appender::check(&path).unwrap();
            assert_eq!(fs::read(&path).unwrap(), lines, "a look changes nothing");
            drop(Appender::open(&path, None).unwrap());
            assert_eq!(fs::read(&path).unwrap(), repaired);
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
            let end = contents.iter().rposition(|&byte| byte != 0);
            let text = &contents[..end.map_or(0, |at| at + 1)];
            let ours = |line: &[u8]| {
                line.starts_with(jsonl::LINE_START) || jsonl::LINE_START.starts_with(line)
            };
            let mut lines = text.rsplit(|&byte| byte == b'\n');
            let last = lines.next().unwrap();
            let start = (text.len() - last.len()) as u64;
            let expected = if !last.is_empty() {
                match ours(last) {
                    false => Tail::Foreign,
                    true if is_json(last) => Tail::Unended {
                        end: text.len() as u64,
                    },
                    true => Tail::Torn { start },
                }
            } else if text.len() == contents.len() {
                Tail::Whole
            } else if lines
                .next()
                .is_none_or(|former| former.starts_with(jsonl::LINE_START))
            {
                Tail::Torn { start }
            } else {
                Tail::Foreign
            };
            assert_eq!(tail::inspect(&file).unwrap(), expected);
        });
}

fn is_json(line: &[u8]) -> bool {
    serde_json::from_slice::<serde::de::IgnoredAny>(line).is_ok()
}
