//! The guide to restores, from a dump to its new era.

use std::process::Command;

use posthaste_testkit::{process, servers::postgres::PostgresServer};

use crate::{
    page::{self, shows},
    tools,
};

#[test]
fn the_guide_to_restores_works_as_it_is_written() {
    let server = PostgresServer::builder().setting("fsync", "off").start();
    server.psql(
        "postgres",
        "create role admin login superuser; create role shop login; create role posthaste login",
    );
    server.psql("postgres", "create database shop");
    let folder = tempfile::tempdir().unwrap();
    let blocks = page::blocks(&page::read("docs/guides/restore.md"));
    let (mut ran, mut compared) = (0, 0);
    for (number, block) in blocks
        .iter()
        .enumerate()
        .filter(|(_, b)| b.language == "sh")
    {
        let commands = block
            .text
            .replace("@localhost/", &format!("@127.0.0.1:{}/", server.port()))
            .replace("/var/spool", folder.path().to_str().unwrap());
        let mut bash = Command::new("bash");
        bash.args(["-euo", "pipefail", "-c", &commands])
            .current_dir(folder.path())
            .env("PATH", tools::path(folder.path()));
        let finished = process::run(&mut bash, tools::LIMIT).expect_status(0);
        ran += block.text.lines().count();
        let next = blocks.get(number + 1).filter(|b| b.language == "text");
        if let Some(shown) = next {
            assert!(
                shows(&shown.text, &finished.stdout),
                "{}\nis not\n{}",
                finished.stdout,
                shown.text
            );
            compared += 1;
        }
    }
    assert_eq!((ran, compared), (10, 1), "the page has commands");
    let delivered = std::fs::read_to_string(folder.path().join("events.jsonl")).unwrap();
    assert_eq!(delivered.lines().count(), 2, "{delivered}");
}
