//! The settings of payloads: a relay, and a consumer that reads what it delivered.

#[cfg(feature = "schema-registry")]
mod schemas;
#[cfg(feature = "claim-check")]
mod stored;

#[cfg(feature = "compression")]
use posthaste_testkit::{lines::Line, process::run};

#[cfg(feature = "compression")]
use crate::harness::LIMIT;
use crate::harness::{World, says};

#[cfg(feature = "compression")]
fn header<'l>(line: &'l Line, name: &str) -> Option<&'l str> {
    let mut headers = line.headers.iter();
    let (_, value) = headers.find(|(found, _)| found == name)?;
    value.as_deref()
}

/// The payloads of a file, by the consumer of the documents.
#[cfg(feature = "compression")]
fn unpacked(world: &World, file: &str) -> Vec<String> {
    let script = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/examples/python/payloads.py"
    );
    let mut python = std::process::Command::new("python3");
    python.arg(script).arg(world.path(file));
    let finished = run(&mut python, LIMIT).expect_status(0);
    finished.stdout.lines().map(str::to_owned).collect()
}

#[cfg(feature = "compression")]
#[test]
fn compressed_payloads_are_marked_and_small_ones_left_alone() {
    let world = World::with_outbox();
    let large = format!("{{\"text\":\"{}\"}}", "posthaste ".repeat(1_000));
    world.emit("t", "k", &large);
    world.emit("t", "k", "small");
    world.drain("file:gzip.jsonl", &["--compression", "gzip"], 0);
    let replayed = [
        "--destination",
        "second",
        "--compression",
        "zstd",
        "--compression-bytes-min",
        "20KiB",
    ];
    world.drain("file:plain.jsonl", &replayed, 0);
    for (file, encoding) in [("gzip.jsonl", Some("gzip")), ("plain.jsonl", None)] {
        let lines = world.delivered(file);
        assert_eq!(lines.len(), 2, "{file}");
        assert_eq!(header(&lines[0], "content-encoding"), encoding);
        assert_eq!(header(&lines[1], "content-encoding"), None);
        assert_eq!(lines[1].payload().unwrap(), b"small");
        let packed = lines[0].payload().unwrap();
        assert_eq!(packed.len() < 200, encoding.is_some());
        assert_eq!(unpacked(&world, file), [&*large, "small"]);
    }
}

#[test]
fn wrong_settings_of_payloads_are_told_with_their_fix() {
    let world = World::with_outbox();
    let relay = ["relay", "--from", "sqlite:shop.db", "--to", "null:"];
    let refused = |args: &[&str]| world.ends(&[&relay, args].concat(), 2);
    says(
        &refused(&["--compression", "brotli"]),
        &["brotli", "gzip or zstd"],
    );
    says(
        &refused(&["--compression-bytes-min", "1KiB"]),
        &["does nothing without `compression`"],
    );
    says(
        &refused(&["--claim-check-bytes", "1KiB"]),
        &["does nothing without `claim_check`"],
    );
    says(
        &refused(&["--schema-subject", "orders"]),
        &["does nothing without `schema_registry`"],
    );
    #[cfg(feature = "schema-registry")]
    {
        let secret = refused(&["--schema-registry", "ftp://user:hidden@host"]);
        says(
            &secret,
            &[
                "`schema_registry`",
                "the secret in --schema-registry can be seen",
            ],
        );
        assert!(!secret.stderr.contains("hidden"), "{}", secret.stderr);
    }
    #[cfg(not(feature = "schema-registry"))]
    says(
        &refused(&["--schema-registry", "http://host"]),
        &["asks no schema registry", "--features schema-registry"],
    );
    #[cfg(feature = "claim-check")]
    for (storage, said) in [
        ("s3://user:hidden@bucket", "without a login"),
        (
            "s3://bucket?secret_access_key=hidden",
            "set AWS_SECRET_ACCESS_KEY instead",
        ),
        (
            "az://bucket?account=a&account_key=hidden!",
            "set AZURE_STORAGE_ACCOUNT_KEY instead",
        ),
    ] {
        let secret = refused(&["--claim-check", storage]);
        says(&secret, &["`claim_check`", said]);
        assert!(!secret.stderr.contains("hidden"), "{}", secret.stderr);
    }
    #[cfg(not(feature = "claim-check"))]
    says(
        &refused(&["--claim-check", "file:///tmp"]),
        &["stores no payloads", "--features claim-check"],
    );
    #[cfg(not(feature = "compression"))]
    says(
        &refused(&["--compression", "gzip"]),
        &["this build has no compression", "--features compression"],
    );
}
