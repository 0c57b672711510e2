//! Runs what README.md and the pages of docs tell people to type, and the example consumers.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod consumers;
mod guide;
mod page;
mod quickstarts;
mod restore;
mod tools;

use std::{fs, process::Command};

use posthaste_testkit::{process, servers::postgres::PostgresServer};

/// Runs a page's commands in a folder of their own, against a database of their own, then its SQL.
/// A relay that would run for ever ends when it is drained.
fn run_page(name: &str, replacements: &[(&str, &str)]) {
    let server = PostgresServer::shared(15);
    let database = server.create_database();
    let suffix = database
        .name()
        .replace(|c: char| !c.is_ascii_alphanumeric(), "");
    let (admin, shop, relay) = (
        format!("admin{suffix}"),
        format!("shop{suffix}"),
        format!("relay{suffix}"),
    );
    database.psql(&format!(
        "create role {admin} login superuser; create role {shop} login; create role {relay} login"
    ));
    let folder = tempfile::tempdir().unwrap();
    let address = format!("127.0.0.1:{}/{}", server.port(), database.name());
    let here = |text: &str| {
        let text = text
            .replace("admin@localhost/shop", &format!("{admin}@{address}"))
            .replace("posthaste@localhost/shop", &format!("{relay}@{address}"))
            .replace(
                "--writer shop --relay posthaste",
                &format!("--writer {shop} --relay {relay}"),
            )
            .replace("/var/spool", folder.path().to_str().unwrap());
        replacements
            .iter()
            .fold(text, |text, (from, to)| text.replace(from, to))
    };
    let blocks = page::blocks(&page::read(name));
    let of = |language: &'static str| blocks.iter().filter(move |b| b.language == language);
    for (block, file) in of("toml").zip(["posthaste.toml"]) {
        fs::write(folder.path().join(file), here(&block.text)).unwrap();
    }
    let joined = |block: &page::Block| block.text.replace("\\\n", "") + "\n";
    let commands: String = of("sh").map(joined).collect();
    let commands: String = commands
        .lines()
        .filter(|line| line.starts_with("posthaste "))
        .map(|line| {
            let ends = !line.starts_with("posthaste relay ") || line.contains("--until-drained");
            here(line) + if ends { "\n" } else { " --until-drained\n" }
        })
        .collect();
    assert!(commands.lines().count() >= 3, "the page has commands");
    let mut bash = Command::new("bash");
    bash.args(["-euxo", "pipefail", "-c", &commands])
        .current_dir(folder.path())
        .env("PATH", tools::path(folder.path()));
    process::run(&mut bash, tools::LIMIT).expect_status(0);
    for block in of("sql") {
        database.psql(&block.text);
    }
    database.psql(&format!(
        "drop owned by {shop}, {relay}; drop role {shop}; drop role {relay};
         reassign owned by {admin} to postgres; drop role {admin}"
    ));
}

/// README shows Kafka, which is a feature of the build.
#[cfg(feature = "kafka")]
#[test]
fn the_readme_works_as_it_is_written() {
    let kafka = posthaste_testkit::servers::kafka::KafkaServer::shared();
    run_page("README.md", &[("localhost:9092", &kafka.bootstrap())]);
}

#[test]
fn the_operators_guide_works_as_it_is_written() {
    // Another process may listen there; the guide's port is as good as any.
    let port = ("--http 127.0.0.1:9187", "--http 127.0.0.1:0");
    run_page("docs/operating.md", &[port]);
}

#[test]
fn the_guide_to_several_relays_works_as_it_is_written() {
    run_page("docs/guides/several-relays.md", &[]);
}
