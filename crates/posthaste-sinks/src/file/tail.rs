//! The end of a file that is about to be appended to.

use std::{
    fs::File,
    io::{self, BufReader, Read, Seek, SeekFrom},
    os::unix::fs::FileExt,
};

use serde::de::IgnoredAny;

use crate::jsonl::LINE_START;

/// How a file ends.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Tail {
    /// Empty, or with a whole line.
    Whole,
    /// With a whole line of ours that lacks its newline, which some editors take away.
    Unended {
        /// Where the newline belongs.
        end: u64,
    },
    /// With the first part of a line of ours, or with blocks that were never written: a crash or a
    /// full device in mid-write. It was never accepted, so it may go.
    Torn {
        /// Where what was accepted ends.
        start: u64,
    },
    /// With text that is not ours to cut.
    Foreign,
}

/// Reads the file's last line, as little of it as is needed.
pub(super) fn inspect(file: &File) -> io::Result<Tail> {
    let len = file.metadata()?.len();
    // Whose length reached the device before a loss of power, and whose bytes did not.
    let end = rposition(file, len, |byte| byte != 0)?;
    let start = rposition(file, end, |byte| byte == b'\n')?;
    if start < end {
        return Ok(if !begins_as_ours(file, start, end)? {
            Tail::Foreign
        } else if is_json(file, start, end)? {
            Tail::Unended { end }
        } else {
            Tail::Torn { start }
        });
    }
    if end == len {
        return Ok(Tail::Whole);
    }
    let former = rposition(file, end.saturating_sub(1), |byte| byte == b'\n')?;
    Ok(match end == 0 || begins_as_ours(file, former, end)? {
        true => Tail::Torn { start: end },
        false => Tail::Foreign,
    })
}

fn begins_as_ours(file: &File, start: u64, end: u64) -> io::Result<bool> {
    let mut head = [0; LINE_START.len()];
    let wanted = usize::try_from(end - start).map_or(head.len(), |len| len.min(head.len()));
    file.read_exact_at(&mut head[..wanted], start)?;
    Ok(head[..wanted] == LINE_START[..wanted])
}

fn is_json(mut file: &File, start: u64, end: u64) -> io::Result<bool> {
    file.seek(SeekFrom::Start(start))?;
    let line = BufReader::new(file.take(end - start));
    match serde_json::from_reader::<_, IgnoredAny>(line) {
        Ok(_) => Ok(true),
        Err(error) if error.is_io() => Err(error.into()),
        Err(_) => Ok(false),
    }
}

/// The position behind the last such byte before `end`; 0 without one.
fn rposition(file: &File, end: u64, wanted: impl Fn(u8) -> bool) -> io::Result<u64> {
    let mut block = vec![0; 64 << 10];
    let mut to = end;
    while to > 0 {
        let len = usize::try_from(to).map_or(block.len(), |to| to.min(block.len()));
        let from = to - len as u64;
        file.read_exact_at(&mut block[..len], from)?;
        if let Some(at) = block[..len].iter().rposition(|&byte| wanted(byte)) {
            return Ok(from + at as u64 + 1);
        }
        to = from;
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn tail_of(contents: &[u8]) -> Tail {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(contents).unwrap();
        inspect(&file).unwrap()
    }

    #[test]
    fn ends_are_told_apart() {
        let long = [b"{\"seq\":1}\n{\"seq\":2,".as_slice(), &[b'x'; 200_000]].concat();
        for (contents, tail) in [
            (&b""[..], Tail::Whole),
            (b"{\"seq\":1}\n", Tail::Whole),
            (b"\n", Tail::Whole),
            (b"{\"seq\":1}\n{", Tail::Torn { start: 10 }),
            (b"{\"seq\":1", Tail::Torn { start: 0 }),
            (b"{\"seq\":1}", Tail::Unended { end: 9 }),
            (b"{\"seq\":1}\n{\"seq\":2}", Tail::Unended { end: 19 }),
            (b"{\"seq\":1}x", Tail::Torn { start: 0 }),
            (b"{\"se", Tail::Torn { start: 0 }),
            (&long, Tail::Torn { start: 10 }),
            (b"{\"seq\":1}\nroot:x:0", Tail::Foreign),
            (b"notes", Tail::Foreign),
            // Blocks that were never written.
            (&[0; 100_000], Tail::Torn { start: 0 }),
            (b"{\"seq\":1}\n\0\0", Tail::Torn { start: 10 }),
            (b"{\"seq\":1}\n{\"seq\"\0", Tail::Torn { start: 10 }),
            (b"{\"seq\":1}\0", Tail::Unended { end: 9 }),
            (b"x\n{\"seq\":1}\n\0", Tail::Torn { start: 12 }),
            (b"notes\n\0", Tail::Foreign),
            (b"\n\0", Tail::Foreign),
            (b"notes\0", Tail::Foreign),
        ] {
            assert_eq!(tail_of(contents), tail, "{} bytes", contents.len());
        }
    }
}
