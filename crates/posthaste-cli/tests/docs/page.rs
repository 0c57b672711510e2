//! The project's pages, and the fenced blocks in them.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// A fenced block: the word behind the opening fence, and what it encloses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) language: String,
    pub(crate) text: String,
}

pub(crate) fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
    root.unwrap().to_path_buf()
}

pub(crate) fn read(page: &str) -> String {
    fs::read_to_string(root().join(page)).unwrap()
}

/// All blocks of a page, in order.
pub(crate) fn blocks(page: &str) -> Vec<Block> {
    let mut found = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        if let Some(language) = line.strip_prefix("```") {
            let enclosed: Vec<_> = lines.by_ref().take_while(|line| *line != "```").collect();
            found.push(Block {
                language: language.to_owned(),
                text: enclosed.join("\n") + "\n",
            });
        }
    }
    found
}

/// Whether a text is as a page shows it: `…` stands for any text, and any white space but a line's
/// end for one space.
pub(crate) fn shows(expected: &str, actual: &str) -> bool {
    let (expected, actual) = (squeezed(expected), squeezed(actual));
    let mut pieces = expected.split('…');
    let Some(mut rest) = pieces.next().and_then(|first| actual.strip_prefix(first)) else {
        return false;
    };
    let mut pieces: Vec<_> = pieces.collect();
    let Some(last) = pieces.pop() else {
        return rest.is_empty();
    };
    for piece in pieces {
        let Some((_, behind)) = rest.split_once(piece) else {
            return false;
        };
        rest = behind;
    }
    rest.ends_with(last)
}

fn squeezed(text: &str) -> String {
    let line = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    text.trim().lines().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_page_shows_what_it_means() {
    assert!(shows("a\nb\n", "a \nb"));
    assert!(!shows("a\nb", "a\nb\nc"));
    assert!(shows("…\nopen  1 …  0\n…", "x\ny\nopen    1  7s      0\nz"));
    assert!(!shows(
        "…\nopen  1 …  0\n…",
        "x\ny\nopen    2  7s      0\nz"
    ));
    assert!(!shows("ab…ba", "aba"));
}
