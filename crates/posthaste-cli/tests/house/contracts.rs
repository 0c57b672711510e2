//! The contracts of stores and sinks are small: a plug-in fills in a few methods a trait.

use super::{files_below, read, root};

const METHODS_MAX: usize = 6;

#[test]
fn no_trait_of_a_contract_is_large() {
    let engine = root().join("crates/posthaste-engine/src");
    let mut files = files_below(&engine.join("store"), "rs");
    files.extend([engine.join("store.rs"), engine.join("sink.rs")]);
    let mut traits = 0;
    for file in files {
        let text = read(&file);
        for part in text.split("\npub trait ").skip(1) {
            let name: String = part.chars().take_while(|c| c.is_alphanumeric()).collect();
            let body = part.split("\n}\n").next().unwrap();
            let methods = body.lines().filter(|line| is_method(line)).count();
            assert!(methods <= METHODS_MAX, "{name} has {methods} methods");
            traits += 1;
        }
    }
    assert!(traits >= 12, "the contracts were not understood");
}

fn is_method(line: &str) -> bool {
    ["    fn ", "    async fn "]
        .iter()
        .any(|start| line.starts_with(start))
}
