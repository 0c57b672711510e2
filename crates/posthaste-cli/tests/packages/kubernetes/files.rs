//! The project's files, and manifests that were read.

use std::fs;

use serde::Deserialize;
use serde_json::Value;

use crate::{installed, made::root};

/// Set, a test writes the files that it would compare.
const WRITE: &str = "POSTHASTE_WRITE_DOCS";

/// A file by its path in the project.
pub(super) fn read(file: &str) -> String {
    installed::read(&root().join(file))
}

/// A file that is made from others is as it is made now; or is made now, if that is asked for.
pub(super) fn assert_made(file: &str, text: &str) {
    if std::env::var_os(WRITE).is_some() {
        fs::write(root().join(file), text).unwrap();
    }
    assert!(
        read(file) == text,
        "{file} is not what it is made from; write it with \
         {WRITE}=1 cargo test -p posthaste-cli --all-features --test packages"
    );
}

/// The documents of a YAML text.
pub(super) fn yaml(text: &str) -> Vec<Value> {
    let documents = yaml_serde::Deserializer::from_str(text);
    let documents = documents.map(|document| Value::deserialize(document).unwrap());
    documents.filter(|document| !document.is_null()).collect()
}

/// The fenced blocks of a page in this language.
pub(super) fn blocks(page: &str, language: &str) -> Vec<String> {
    let (page, fence) = (read(page), format!("```{language}\n"));
    let pieces = page.split(&fence).skip(1);
    let blocks = pieces.map(|piece| piece.split_once("```").unwrap().0.to_owned());
    blocks.collect()
}
