//! The end of a file that is about to be appended to.

use std::{fs::File, io, os::unix::fs::FileExt};

use crate::jsonl::LINE_START;

/// How a file ends.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Tail {
    /// Empty, or with a whole line.
    Whole,
    /// With the first part of a line of ours: a crash or a full device in mid-write. It was never
    /// accepted, so it may go.
    Torn {
        /// Where the torn line starts.
        start: u64,
    },
    /// With text that is not ours to cut.
    Foreign,
}

/// Reads the file's last line, as little of it as is needed.
pub(super) fn inspect(file: &File) -> io::Result<Tail> {
    let end = file.metadata()?.len();
    let start = last_line_start(file, end)?;
    if start == end {
        return Ok(Tail::Whole);
    }
    let mut head = [0; LINE_START.len()];
    let wanted = usize::try_from(end - start).map_or(head.len(), |len| len.min(head.len()));
    file.read_exact_at(&mut head[..wanted], start)?;
    Ok(if head[..wanted] == LINE_START[..wanted] {
        Tail::Torn { start }
    } else {
        Tail::Foreign
    })
}

/// The position behind the last newline.
fn last_line_start(file: &File, end: u64) -> io::Result<u64> {
    let mut block = vec![0; 64 << 10];
    let mut to = end;
    while to > 0 {
        let len = usize::try_from(to).map_or(block.len(), |to| to.min(block.len()));
        let from = to - len as u64;
        file.read_exact_at(&mut block[..len], from)?;
        if let Some(at) = block[..len].iter().rposition(|&byte| byte == b'\n') {
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
            (b"{\"seq\":1}", Tail::Torn { start: 0 }),
            (b"{\"se", Tail::Torn { start: 0 }),
            (&long, Tail::Torn { start: 10 }),
            (b"{\"seq\":1}\nroot:x:0", Tail::Foreign),
            (b"notes", Tail::Foreign),
        ] {
            assert_eq!(tail_of(contents), tail, "{} bytes", contents.len());
        }
    }
}
