//! Input that people write: configuration files, units, references, addresses, arguments.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use bolero::check;
use clap::Parser;
use posthaste_testkit::fuzz::{iterations, percent_encoded, spelled, words};

use super::{FileConfig, report::Source, secrets, units};
use crate::{Cli, secret::SecretUrl};

const SECRET: &str = "GEHEIM";

const FILE_WORDS: &str = "\
    [relay]\n|[stores.main]\n|[stores.b]\n|[destinations.a]\n|[destinations.\"a b\"]\n|\
    [destinations.ü]\n|[[routes]]\n|[routes]\n|[relay|lease = |\"15s\"\n|\"15\"\n|15\n|-1\n|\
    0x10\n|1_000\n|true\n|1979-05-27\n|inf\n|[]\n|{}\n|{ a = 1 }\n|\"\"\n|'ü; b'\n|\
    window_size = |\"8MiB\"\n|batch_events = |http = |\"127.0.0.1:0\"\n|log = |\"json\"\n|\
    url = |\"null:\"\n|\"${HOME}\"\n|\"${NO_SUCH}\"\n|\"${\"\n|\"$$\"\n|topic = |\
    \"{topic}\"\n|\"{tpic}; {\"\n|\"orders.*\"\n|\"a[\"\n|key = |type = |headers = |\
    { region = \"eu\" }\n|to = |[\"a\"]\n|[\"b\"]\n|drop = |attempts = |on_dead = |backoff = |\
    backoff_max = |start = |\"now\"\n|leese = |\"amqp://u:GEHEIM@h/\"|\
    [destinations.\"amqp://u:GEHEIM@h/\"]\n|{ password = \"GEHEIM\" }|password = \"GEHEIM\"|\
    [\"amqp://u:GEHEIM@h/\"]|\"${amqp://u:GEHEIM@h/}\"|\n|\r\n|# ü\n|\"|\\|.";

fn parse(text: String) -> Result<(), String> {
    let name = "p.toml".to_owned();
    let folder = PathBuf::new();
    let file = FileConfig::parse(Source { name, folder, text });
    let routes = file.and_then(|file| file.routes.compile(&file.destinations));
    routes.map(|_| ()).map_err(|error| error.to_string())
}

/// A file is taken, or refused with its place in the file, a caret and a fix, and no secret is
/// shown.
#[test]
fn fuzz_files() {
    check!()
        .with_iterations(iterations(500))
        .with_max_len(24)
        .for_each(|input: &[u8]| {
            let text = spelled(input, &words(FILE_WORDS));
            // It would name a file to be read.
            if text.contains("file:") {
                return;
            }
            let store = format!("stores.main.url = \"postgres://me:{SECRET}@h/d\"");
            for text in [text.clone(), format!("{store}\n{text}")] {
                let Err(report) = parse(text.clone()) else {
                    continue;
                };
                assert!(!report.contains(SECRET), "{text}\ngave\n{report}");
                let (_, place) = report.split_once("--> p.toml:").unwrap();
                let (line, place) = place.split_once(':').unwrap();
                let line: usize = line.parse().unwrap();
                let column: usize = place.lines().next().unwrap().parse().unwrap();
                assert!(
                    line <= text.matches('\n').count() + 1,
                    "{text}\ngave\n{report}"
                );
                let length = text.split('\n').nth(line - 1).unwrap().chars().count();
                assert!((1..=length + 1).contains(&column), "{text}\ngave\n{report}");
                assert!(
                    report.contains("\nfix: ") && report.contains('^'),
                    "{report}"
                );
            }
        });
}

const URL_WORDS: &str = "GEHEIM|@|:|/|?|&|=|%|[|]|,|#|;| |'|\\|$$|://|token=|?password=|x|1|ü";

/// However a password is written, no error about its line and no print of its URL shows it.
#[test]
fn fuzz_passwords() {
    check!()
        .with_iterations(iterations(500))
        .with_max_len(20)
        .for_each(|input: &[u8]| {
            let text = spelled(input, &words(URL_WORDS)).replace(['\n', '\r', '"'], "");
            for url in [
                format!("postgres://me:{text}@host:5432/db?x=1"),
                format!("postgres://me:{SECRET}{}", text.replace(SECRET, "")),
                format!("amqp:me:{text}@host:5672/v?x=1"),
                format!("nats://{}@host:4222/?x=1", percent_encoded(&text)),
                format!(
                    "postgres://host:5432/db?user=me&password={}",
                    percent_encoded(&text)
                ),
                format!(
                    "kafka://one:9092,two:9092?sasl_password={}",
                    percent_encoded(&text)
                ),
                format!("https://host/in?secret={}", percent_encoded(&text)),
            ] {
                let shown = SecretUrl::new(&*url).to_string();
                assert!(!shown.contains(SECRET), "{url}: {shown}");
                if text.contains(SECRET) {
                    assert!(SecretUrl::new(&*url).holds_a_password(), "{url}");
                }
                let line = format!("[destinations]\na = {{ url = \"{url}\", nonsense = 1 }}\n");
                let report = parse(line).unwrap_err();
                assert!(!report.contains(SECRET), "{url}\ngave\n{report}");
            }
        });
}

/// A URL without a secret is shown as it is.
#[test]
fn fuzz_urls_without_secrets() {
    check!()
        .with_iterations(iterations(500))
        .with_max_len(20)
        .for_each(|input: &[u8]| {
            let text = percent_encoded(&spelled(input, &words(URL_WORDS)));
            for url in [
                format!(
                    "postgres://me@host:5432,[::1]:1/{text}?application_name={text}\
                     &sslrootcert={text}"
                ),
                format!("amqp://host/{text}?exchange={text}"),
                format!("kafka://host?key_file={text}"),
                format!("sqlite:{text}?busy_timeout=5s"),
                format!("file:///{text}"),
            ] {
                let secret = SecretUrl::new(&*url);
                assert_eq!(secret.to_string(), url);
                assert!(!secret.holds_a_password());
            }
        });
}

const UNIT_WORDS: &str = "\
    0|1|9|15|1.5|.|-|+| |s|ms|us|ns|m|min|h|d|days|w|M|y|years|B|kB|KiB|MiB|GiB|KIB|TiB|\
    18446744073709551615|99999999999999999999|ü|e9";

/// A duration or a size is read or refused with an example, and is as large as every database can
/// count.
#[test]
fn fuzz_units() {
    check!()
        .with_iterations(iterations(2_000))
        .with_max_len(12)
        .for_each(|input: &[u8]| {
            let text = spelled(input, &words(UNIT_WORDS));
            match units::duration(&text) {
                Ok(duration) => assert!(i64::try_from(duration.as_micros()).is_ok(), "{text}"),
                Err(error) => assert!(error.contains("; write "), "{text}: {error}"),
            }
            if let Err(error) = units::size(&text) {
                assert!(error.contains("; write "), "{text}: {error}");
            }
            assert!(
                units::duration(&text).is_err()
                    || units::size(&text).is_err()
                    || text.trim() == "0"
            );
        });
}

/// A value with its unit is read back as the same value.
#[test]
fn fuzz_numbers_with_units() {
    check!()
        .with_iterations(iterations(1_000))
        .with_type::<(u32, u32, u8)>()
        .for_each(|&(number, nanos, tenths)| {
            let duration = Duration::new(number.into(), nanos % 1_000_000_000);
            let written = humantime::format_duration(duration).to_string();
            assert_eq!(units::duration(&written), Ok(duration), "{written}");
            for (unit, bytes) in [
                ("B", 1),
                ("kB", 1_000),
                ("KiB", 1 << 10),
                ("MiB", 1 << 20),
                ("GiB", 1 << 30),
            ] {
                let whole = number as usize * bytes;
                assert_eq!(units::size(&format!("{number}{unit}")), Ok(whole));
                let tenths = usize::from(tenths % 10);
                let size = units::size(&format!(" {number}.{tenths} {unit} "));
                assert_eq!(size, Ok(whole + tenths * bytes / 10));
            }
        });
}

const REFERENCE_WORDS: &str = "$|$$|${|}|${A}|${B}|${}|${a|A|ü|{A}";

/// References are replaced once, what they bring is not looked through, and what is escaped comes
/// out as it was.
#[test]
fn fuzz_references() {
    check!()
        .with_iterations(iterations(2_000))
        .with_max_len(24)
        .for_each(|input: &[u8]| {
            let text = spelled(input, &words(REFERENCE_WORDS));
            let env = |name: &str| (name == "A").then(|| format!("${{A}}{SECRET}"));
            let escaped = text.replace('$', "$$");
            assert_eq!(
                secrets::resolve_with(&escaped, Path::new(""), env),
                Ok(text.clone())
            );
            if text.contains("file:") {
                return;
            }
            match secrets::resolve_with(&text, Path::new(""), env) {
                Ok(resolved) => {
                    let brought = resolved.matches(SECRET).count();
                    assert!(
                        brought <= text.matches("${A}").count(),
                        "{text}: {resolved}"
                    );
                }
                Err(error) => {
                    assert!(!error.contains(SECRET), "{text}: {error}");
                    assert!(
                        text.contains("${") && error.contains("; "),
                        "{text}: {error}"
                    );
                }
            }
        });
}

const ARGUMENT_WORDS: &str = "\
    \x20| relay| init| status| dead| list| retry| destination| purge| demo| --from| --to|\
    \x20--store| --config| --json| --lease| 15s| 15| --attempts| 0| --http| 127.0.0.1:0| --start|\
    \x20now| --on-dead| block| null:| sqlite:a.db| --| -|=| --help| ü| --limit|\
    \x2018446744073709551616| --backoff-jitter| 101";

/// Arguments are taken or refused in words.
#[test]
fn fuzz_arguments() {
    check!()
        .with_iterations(iterations(200))
        .with_max_len(10)
        .for_each(|input: &[u8]| {
            let line = format!("posthaste{}", spelled(input, &words(ARGUMENT_WORDS)));
            if let Err(error) = Cli::try_parse_from(line.split(' ')) {
                assert!(!error.to_string().is_empty(), "{line}");
            }
        });
}
