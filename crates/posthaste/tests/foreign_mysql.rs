//! The examples for MySQL in other languages, run for real as a user that may only insert.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use posthaste_testkit::servers::mysql::Version;
use posthaste_testkit::{packages, process};

use crate::support::MysqlOutboxes;

/// Far more than an example takes, compiled first or not: only what hangs meets it.
const LIMIT: Duration = Duration::from_secs(120);

/// One list for all languages: topic, key, type, content type, payload, number of headers.
const EXPECTED: &str = "\
orders|order-1|order.placed|-|746578743a204772c3b6c39f65|6
orders|order-1|-|application/json|json|0
orders|order-1|-|-|00fffe|0
orders|order-1|-|-|-|0
orders|order-1|-|-|6c6f636b6564|0
orders|order-1|-|-|6166746572207468652073617665706f696e74|0";

const HEADERS: &str = r#"["source","shop","source","again","no-value",null]"#;

/// Spaces inside JSON are the client's business.
const STORED: &str = "\
select concat_ws('|', topic, `key`, coalesce(`type`, '-'), coalesce(content_type, '-'),
                 case when content_type is null then coalesce(lower(hex(payload)), '-')
                      when json_extract(convert(payload using utf8mb4), '$.a') = 1 then 'json' end,
                 json_length(headers))
from posthaste_outbox order by seq";

fn example(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs/examples/mysql")
        .join(file)
}

/// Runs a program against each server, told where it is.
fn check(program: impl Fn(&MysqlOutboxes) -> Command) {
    for version in Version::ALL {
        let outboxes = MysqlOutboxes::new(version);
        outboxes.rows(&format!(
            "create table orders (id varchar(40) primary key, state varchar(40)); \
             grant insert on orders to {}@'127.0.0.1'",
            outboxes.writer
        ));
        process::run(&mut program(&outboxes), LIMIT).expect_status(0);
        assert_eq!(outboxes.rows(STORED), EXPECTED, "{version:?}");
        let headers = "select replace(headers, ' ', '') from posthaste_outbox order by seq limit 1";
        assert_eq!(outboxes.rows(headers), HEADERS);
        assert_eq!(outboxes.rows("select id from orders"), "order-1");
    }
}

#[test]
fn python() {
    let python = packages::python(&example("requirements.txt"));
    check(|outboxes| {
        let mut python = Command::new(&python);
        python
            .arg(example("emit.py"))
            .env("DATABASE_HOST", "127.0.0.1")
            .env("DATABASE_PORT", outboxes.server.port().to_string())
            .env("DATABASE_USER", &outboxes.writer)
            .env("DATABASE_NAME", outboxes.database.name());
        python
    });
}

#[test]
fn node() {
    let modules = packages::node(&example("package.json"));
    check(|outboxes| {
        let mut node = Command::new("node");
        node.arg(example("emit.js"))
            .env("NODE_PATH", &modules)
            .env("DATABASE_URL", outboxes.writer_url());
        node
    });
}

#[test]
fn java() {
    let jars = packages::java(&example("pom.xml"));
    check(|outboxes| {
        let url = format!(
            "jdbc:mysql://127.0.0.1:{}/{}?user={}",
            outboxes.server.port(),
            outboxes.database.name(),
            outboxes.writer
        );
        let mut java = Command::new("java");
        java.args(["-Dfile.encoding=UTF-8", "-cp"])
            .arg(jars.join("*"))
            .arg(example("Emit.java"))
            .env("DATABASE_URL", url);
        java
    });
}

#[test]
fn go() {
    let folder = tempfile::tempdir().unwrap();
    let module = packages::go(&example("go"));
    for file in [
        module.join("go.mod"),
        module.join("go.sum"),
        example("go/emit.go"),
    ] {
        fs::copy(&file, folder.path().join(file.file_name().unwrap())).unwrap();
    }
    let mut build = Command::new("go");
    build
        .args(["build", "-o", "emit", "."])
        .current_dir(folder.path());
    process::run(&mut build, LIMIT).expect_status(0);
    check(|outboxes| {
        let (port, name) = (outboxes.server.port(), outboxes.database.name());
        let dsn = format!("{}@tcp(127.0.0.1:{port})/{name}", outboxes.writer);
        let mut program = Command::new(folder.path().join("emit"));
        program.env("DATABASE_DSN", dsn);
        program
    });
}

#[test]
fn php() {
    check(|outboxes| {
        let dsn = format!(
            "mysql:host=127.0.0.1;port={};dbname={};charset=utf8mb4",
            outboxes.server.port(),
            outboxes.database.name()
        );
        let mut php = Command::new("php");
        php.arg(example("emit.php"))
            .env("DATABASE_DSN", dsn)
            .env("DATABASE_USER", &outboxes.writer);
        php
    });
}
