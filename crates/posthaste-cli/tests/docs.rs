//! Runs what README.md and docs/operating.md tell people to type, as they would, in one folder.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::{fs, path::Path, process::Command, time::Duration};

use posthaste_testkit::{process, servers::postgres::PostgresServer};

/// Long enough for a dozen commands on a busy machine; it measures nothing.
const LIMIT: Duration = Duration::from_secs(300);

/// The code blocks of this language, in order.
fn blocks(page: &str, language: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        if line == format!("```{language}") {
            let block: Vec<_> = lines.by_ref().take_while(|line| *line != "```").collect();
            found.push(block.join("\n") + "\n");
        }
    }
    found
}

fn page(name: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .unwrap();
    fs::read_to_string(root.join(name)).unwrap()
}

/// Runs a page's commands in a folder of their own, against a database of their own. A relay that
/// would run for ever ends when it is drained.
fn run_page(name: &str) {
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
        text.replace("admin@localhost/shop", &format!("{admin}@{address}"))
            .replace("posthaste@localhost/shop", &format!("{relay}@{address}"))
            .replace(
                "--writer shop --relay posthaste",
                &format!("--writer {shop} --relay {relay}"),
            )
            .replace("/var/spool", folder.path().to_str().unwrap())
    };
    let page = page(name);
    for (block, file) in blocks(&page, "toml").iter().zip(["posthaste.toml"]) {
        fs::write(folder.path().join(file), here(block)).unwrap();
    }
    let commands: String = blocks(&page, "sh")
        .iter()
        .flat_map(|block| block.lines().map(str::to_owned).collect::<Vec<_>>())
        .filter(|line| line.starts_with("posthaste "))
        .map(|line| {
            let ends = !line.starts_with("posthaste relay") || line.contains("--until-drained");
            here(&if ends {
                line
            } else {
                line + " --until-drained"
            }) + "\n"
        })
        .collect();
    assert!(commands.lines().count() >= 3, "the page has commands");
    let binaries = Path::new(env!("CARGO_BIN_EXE_posthaste")).parent().unwrap();
    let path = format!("{}:{}", binaries.display(), std::env::var("PATH").unwrap());
    let mut bash = Command::new("bash");
    bash.args(["-euxo", "pipefail", "-c", &commands])
        .current_dir(folder.path())
        .env("PATH", path);
    process::run(&mut bash, LIMIT).expect_status(0);
    database.psql(&format!(
        "drop owned by {shop}, {relay}; drop role {shop}; drop role {relay};
         reassign owned by {admin} to postgres; drop role {admin}"
    ));
}

#[test]
fn the_readme_works_as_it_is_written() {
    run_page("README.md");
}

#[test]
fn the_operators_guide_works_as_it_is_written() {
    run_page("docs/operating.md");
}
