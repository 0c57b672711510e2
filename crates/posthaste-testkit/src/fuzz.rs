//! The shared parts of the crates' fuzz targets.
//!
//! A target is a test named `fuzz_…` that hands its input, bytes, to `bolero::check!`. `cargo test`
//! runs it with its corpus (`__fuzz__/<target>/corpus` beside the source) and with random bytes;
//! libFuzzer runs the same function (`cargo bolero test -p CRATE TARGET`, with a nightly compiler).

use crate::long_form;

/// How many random inputs a target gets: `short`, in the long form a thousand times as many.
#[must_use]
pub fn iterations(short: usize) -> usize {
    if long_form() { short * 1_000 } else { short }
}

/// The words of a list that has a bar between each two.
#[must_use]
pub fn words(list: &str) -> Vec<&str> {
    list.split('|').collect()
}

/// An input as text. Bytes below 0x80 stand for themselves, so that a corpus is plain text; each
/// other byte stands for one of the parser's `words`, so that random bytes come near what it takes.
///
/// # Panics
/// Without words.
#[must_use]
pub fn spelled(input: &[u8], words: &[&str]) -> String {
    let mut text = String::with_capacity(input.len() * 2);
    for &byte in input {
        match byte.checked_sub(0x80) {
            None => text.push(char::from(byte)),
            Some(word) => text.push_str(words[usize::from(word) % words.len()]),
        }
    }
    text
}

/// Percent-encodes what cannot stand in any part of an address as it is.
#[must_use]
pub fn percent_encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes()
        .map(|byte| match plain(byte) {
            true => char::from(byte).to_string(),
            false => format!("%{byte:02X}"),
        })
        .collect()
}
