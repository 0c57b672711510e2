use std::{path::PathBuf, time::Duration};

use posthaste_engine::{OnDead, Start};

use super::{report::Source, *};

const EXAMPLE: &str = include_str!("../../posthaste.example.toml");

fn parse(text: &str) -> Result<FileConfig, ConfigError> {
    FileConfig::parse(Source {
        name: "p.toml".to_owned(),
        folder: PathBuf::new(),
        text: text.to_owned(),
    })
}

/// The routes' names are checked when everything is put together.
fn error(text: &str) -> String {
    let error = parse(text).and_then(|file| file.routes.compile(&file.destinations));
    error.map(|_| ()).unwrap_err().to_string()
}

#[test]
fn the_example_is_valid_and_names_every_key() {
    let file = parse(EXAMPLE).unwrap();
    assert_eq!(
        file.store.unwrap().expose(),
        "postgres://relay@db.internal:5432/shop?sslmode=verify-full"
    );
    assert_eq!(file.tuning.lease, Some(Duration::from_secs(15)));
    assert_eq!(file.tuning.window_size, Some(8 << 20));
    let names: Vec<_> = file.destinations.iter().map(|d| d.name.as_str()).collect();
    assert_eq!(names, ["orders", "audit"]);
    assert_eq!(file.destinations[0].tuning.on_dead, Some(OnDead::Block));
    assert_eq!(file.destinations[1].start, Start::Now);
    let routes = file.routes.compile(&file.destinations).unwrap();
    assert!(routes.catch_all());
    let keys = tuning::RELAY_KEYS.iter().chain(tuning::DESTINATION_KEYS);
    for key in keys {
        let stands = EXAMPLE.lines().any(|line| {
            line.trim_start_matches("# ")
                .starts_with(&format!("{key} = "))
        });
        assert!(stands, "the example does not show `{key}`");
    }
}

#[test]
fn errors_show_file_line_caret_and_fix() {
    for (text, parts) in [
        (
            "[relay]\nleese = \"15s\"\n",
            &[
                "unknown key `leese` in [relay]",
                "p.toml:2:1",
                "^^^^^",
                "did you mean `lease`?",
            ][..],
        ),
        (
            "[queues]\n",
            &[
                "unknown key `queues`",
                "p.toml:1:2",
                "allowed are relay, stores",
            ],
        ),
        (
            "[relay]\nlease = 15\n",
            &[
                "must be a duration with its unit, found integer",
                "p.toml:2:9",
                "fix: write lease = \"15s\"",
            ],
        ),
        (
            "[relay]\nlease = \"15\"\n",
            &[
                "`15` is not a duration",
                "p.toml:2:9",
                "fix: write a number with a unit",
            ],
        ),
        (
            "[relay]\nwindow_size = \"8M\"\n",
            &["`8M` is not a size", "8MiB"],
        ),
        (
            "[relay]\nbatch_events = 0\n",
            &["whole number", "from 1 to"],
        ),
        (
            "[relay]\nlog = \"xml\"\n",
            &["`xml` is not allowed", "fix: write text or json"],
        ),
        (
            "[stores.a]\nurl = \"${POSTHASTE_NO_SUCH}\"\n",
            &[
                "`POSTHASTE_NO_SUCH` is not set",
                "p.toml:2:7",
                "fix: set it",
            ],
        ),
        ("[stores.a]\n", &["[stores.a] has no `url`", "p.toml:1:1"]),
        (
            "[stores.a]\nurl=\"sqlite:a\"\n[stores.b]\nurl=\"sqlite:b\"\n",
            &["a second store, `b`", "p.toml:3:1"],
        ),
        (
            "[destinations.\"a b\"]\nurl=\"null:\"\n",
            &["cannot name a destination", "fix: use 1 to 63"],
        ),
        (
            "[destinations.a]\nurl=\"null:\"\ntopic=\"{tpic}\"\n",
            &["unknown `{tpic}`", "p.toml:3:7", "fix: allowed are {topic}"],
        ),
        (
            "[destinations.a]\nurl=\"null:\"\nbackoff=\"10s\"\nbackoff_max=\"1s\"\n",
            &["backoff is longer", "p.toml:3:9"],
        ),
        (
            "[[routes]]\ntopic = \"*\"\n",
            &["a route without an end", "p.toml:1:1", "drop = true"],
        ),
        (
            "[[routes]]\nto = [\"order\"]\n[destinations.orders]\nurl=\"null:\"\n",
            &["leads to `order`", "did you mean `orders`?"],
        ),
        (
            "[[routes]]\ndrop = true\n[destinations.a]\nurl=\"null:\"\n",
            &["no route leads to the destination `a`"],
        ),
        (
            "[[routes]]\nto = [\"a\"]\n[[routes]]\ndrop = true\n[destinations.a]\nurl=\"null:\"\n",
            &["never reached", "p.toml:3:1", "fix: "],
        ),
        (
            "[[routes]]\nheaders = { a = 3 }\nto = [\"a\"]\n",
            &["must name headers", "p.toml:2:11"],
        ),
        ("[relay\n", &["not valid TOML", "p.toml:1:7"]),
    ] {
        let report = error(text);
        for part in parts {
            assert!(
                report.contains(part),
                "{text}\ngave\n{report}\nwithout\n{part}"
            );
        }
    }
}

#[test]
fn no_secret_stands_in_an_error() {
    let text = "[stores.a]\nurl = \"postgres://u:hunter2@h/d\"\n";
    let file = parse(text).unwrap();
    assert!(!format!("{file:?}").contains("hunter2\""));
    assert_eq!(file.store.unwrap().to_string(), "postgres://u:***@h/d");

    let address = "amqp://u:hunter2@h/";
    for (text, parts) in [
        (
            "url=\"null:\"\noptions = { password = \"hunter2\" }",
            ["unknown key `options`", ":3:1"],
        ),
        (
            "options = { url = \"null:\", password = \"hunter2\" }",
            ["unknown key `options`", ":2:1"],
        ),
        (
            "url=\"null:\" password=\"hunter2\"",
            ["not valid TOML", ":2:13"],
        ),
        (
            "url=\"null:\"\npwd=\"hunter2\"",
            ["unknown key `pwd`", ":3:1"],
        ),
        ("url=\"null:\"\npass = hunter2", ["not valid TOML", ":3:8"]),
        (
            "url=\"null:\"\non_dead = \"ADDRESS\"",
            ["`on_dead` in [destinations.a]", ":3:11"],
        ),
        (
            "url=\"null:\"\nstart = \"ADDRESS\"",
            ["`start` in [destinations.a]", ":3:9"],
        ),
        (
            "url=\"null:\"\nbackoff = \"ADDRESS\"",
            ["`backoff` in [destinations.a]", ":3:11"],
        ),
        (
            "url=\"null:\"\nsince = \"ADDRESS\"",
            ["`since` in [destinations.a]", ":3:9"],
        ),
        (
            "url=\"null:\"\nattempts = \"ADDRESS\"",
            ["`attempts` in [destinations.a]", ":3:12"],
        ),
        (
            "url=\"null:\"\nkey = \"{ADDRESS}\"",
            ["`key` in [destinations.a]", ":3:7"],
        ),
        ("url = [\"ADDRESS\"]", ["`url` in [destinations.a]", ":2:7"]),
        (
            "url = \"ADDRESS\"\nurl = \"ADDRESS\"",
            ["not valid TOML", ":3:1"],
        ),
        (
            "url = \"${ADDRESS}\"",
            ["`url` in [destinations.a]", ":2:7"],
        ),
        (
            "url = \"${file:ADDRESS}\"",
            ["`url` in [destinations.a]", ":2:7"],
        ),
        ("\"ADDRESS\" = 1", ["unknown key", ":2:1"]),
        (
            "url=\"null:\"\n[destinations.\"ADDRESS\"]\nurl=\"null:\"",
            ["cannot name", ":3:1"],
        ),
        (
            "url=\"null:\"\n[destinations.\"ADDRESS\"]\nb=1",
            ["unknown key `b`", ":4:1"],
        ),
        (
            "url=\"null:\"\n[stores.\"ADDRESS\"]\nb=1",
            ["unknown key `b`", ":4:1"],
        ),
        (
            "url=\"null:\"\n[stores.\"ADDRESS\"]\n[stores.\"ADDRESS/b\"]",
            ["a second store", ":4:1"],
        ),
        (
            "url=\"null:\"\n[[routes]]\nto = [\"ADDRESS\"]",
            ["this route leads to", ":3:1"],
        ),
        (
            "url=\"null:\"\n[[routes]]\nto = \"ADDRESS\"",
            ["`to` in [[routes]]", ":4:6"],
        ),
        (
            "url=\"null:\"\n[[routes]]\nto = [\"a\"]\ntopic = \"[ADDRESS\"",
            ["`topic`", ":3:1"],
        ),
        (
            "url=\"null:\"\n[relay]\nhttp = \"ADDRESS\"",
            ["`http` in [relay]", ":4:8"],
        ),
        (
            "url=\"null:\"\n[relay]\nlog = \"ADDRESS\"",
            ["`log` in [relay]", ":4:7"],
        ),
        (
            "url=\"null:\"\n[relay]\nbatch_size = \"ADDRESS\"",
            ["`batch_size`", ":4:14"],
        ),
    ] {
        let text = format!("[destinations.a]\n{text}\n").replace("ADDRESS", address);
        let report = error(&text);
        assert!(!report.contains("hunter2"), "{text}\ngave\n{report}");
        for part in parts.into_iter().chain(["\nfix: "]) {
            assert!(
                report.contains(part),
                "{text}\ngave\n{report}\nwithout\n{part}"
            );
        }
    }
}
