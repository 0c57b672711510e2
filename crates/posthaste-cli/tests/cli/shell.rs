//! Manual pages, completions and the version: things that packages need of the program.

use std::fs;

use posthaste_testkit::process::Finished;

use crate::harness::{World, last_json, says};

fn prints(finished: &Finished, parts: &[&str]) {
    for part in parts {
        assert!(
            finished.stdout.contains(part),
            "without {part:?}:\n{finished}"
        );
    }
}

#[test]
fn shells_are_told_of_every_command() {
    let world = World::empty();
    for shell in ["bash", "zsh", "fish"] {
        let script = world.ends(&["completions", shell], 0);
        prints(&script, &["relay", "until-drained", "destination", "pause"]);
    }
    world.ends(&["completions", "dos"], 2);
}

#[test]
fn every_command_has_a_manual_page() {
    let world = World::empty();
    prints(
        &world.ends(&["man"], 0),
        &[".TH posthaste 1", "posthaste\\-relay(1)"],
    );
    world.ends(&["man", "--dir", "man1"], 0);
    for page in ["posthaste.1", "posthaste-relay.1", "posthaste-dead-retry.1"] {
        let text = fs::read_to_string(world.path("man1").join(page)).unwrap();
        assert!(text.contains(".SH SYNOPSIS"), "{text}");
    }
    world.write("file", "");
    says(
        &world.ends(&["man", "--dir", "file/man1"], 1),
        &["file/man1", "fix: "],
    );
}

#[test]
fn the_version_names_what_was_built() {
    let world = World::empty();
    let version = env!("CARGO_PKG_VERSION");
    let said = world.ends(&["version"], 0);
    prints(
        &said,
        &[version, "commit: ", "postgres (schema ", "rabbitmq"],
    );
    let json = last_json(&world.ends(&["version", "--json"], 0));
    assert_eq!(json["version"], version);
    assert!(
        json["commit"].is_null() || json["commit"].is_string(),
        "{json}"
    );
    for plug_in in ["sqlite", "postgres"] {
        assert!(
            json["stores"]
                .as_array()
                .unwrap()
                .iter()
                .any(|name| name == plug_in)
        );
        assert!(json["schema"][plug_in].as_u64().unwrap() > 0, "{json}");
    }
    assert!(
        json["sinks"]
            .as_array()
            .unwrap()
            .iter()
            .any(|name| name == "kafka")
    );
    let short = world.ends(&["--version"], 0);
    assert_eq!(short.stdout.trim_end(), format!("posthaste {version}"));
}
