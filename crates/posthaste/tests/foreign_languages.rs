//! The examples in other languages, run for real as a role that may only insert: connected to the
//! server itself, and through a pooler that gives a connection to a client for one transaction
//! only.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::Outboxes;
use posthaste_testkit::packages;
use posthaste_testkit::servers::pgbouncer::PgBouncer;

/// One list for all languages: topic, key, type, content type, payload, headers.
const EXPECTED: &str = "\
orders|order-1|order.placed|-|746578743a204772c3b6c39f65|{source,shop,source,again,no-value,NULL}
orders|order-1|-|application/json|json|{}
orders|order-1|-|application/json|json|{}
orders|order-1|-|-|00fffe|{}
orders|order-1|-|-|-|{}
orders|order-1|-|-|6c6f636b6564|{}
orders|order-1|-|-|6166746572207468652073617665706f696e74|{}
orders|order-1|-|-|696e736572746564|{source,shop,source,again,no-value,NULL}";

/// Spaces and order inside JSON are the client's or the server's business.
const STORED: &str = "\
select topic, key, coalesce(type, '-'), coalesce(content_type, '-'),
       case when content_type is null then coalesce(encode(payload, 'hex'), '-')
            when convert_from(payload, 'UTF8')::jsonb = '{\"a\": 2, \"b\": 1}' then 'json' end,
       headers
from posthaste.outbox order by seq";

fn example(language: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs/examples")
        .join(language)
}

/// Runs to the end and returns what it printed.
#[track_caller]
fn run(command: &mut Command) -> String {
    let output = command
        .output()
        .unwrap_or_else(|e| panic!("cannot start {command:?}: {e}"));
    assert!(
        output.status.success(),
        "{command:?} failed:\n{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// Where an example connects to.
struct Address {
    port: u16,
    user: String,
    database: String,
}

impl Address {
    fn url(&self) -> String {
        let Self {
            port,
            user,
            database,
        } = self;
        format!("postgres://{user}@127.0.0.1:{port}/{database}")
    }
}

fn check(program: impl Fn(&Address) -> Command) {
    for pooled in [false, true] {
        let outboxes = Outboxes::new();
        outboxes.rows(&format!(
            "create table orders (id text primary key, state text); grant insert on orders to {}",
            outboxes.writer
        ));
        let pooler = pooled.then(|| PgBouncer::start(outboxes.server, &[&outboxes.writer]));
        let direct = outboxes.server.port();
        let printed = run(&mut program(&Address {
            port: pooler.as_ref().map_or(direct, PgBouncer::port),
            user: outboxes.writer.clone(),
            database: outboxes.database.name().to_owned(),
        }));
        assert_eq!(outboxes.rows(STORED), EXPECTED);
        let ids = "select id from posthaste.outbox where payload is distinct from 'inserted' order \
                   by seq";
        assert_eq!(printed.trim_end(), outboxes.rows(ids));
        assert_eq!(outboxes.rows("select id from orders"), "order-1");
    }
}

#[test]
fn python() {
    let python = packages::python(&example("python").join("requirements.txt"));
    check(|address| {
        let mut python = Command::new(&python);
        python
            .arg(example("python").join("emit.py"))
            .env("DATABASE_URL", address.url());
        python
    });
}

#[test]
fn node() {
    let modules = packages::node(&example("node").join("package.json"));
    check(|address| {
        let mut node = Command::new("node");
        node.arg(example("node").join("emit.js"))
            .env("NODE_PATH", &modules)
            .env("DATABASE_URL", address.url());
        node
    });
}

#[test]
fn java() {
    let jars = packages::java(&example("java").join("pom.xml"));
    check(|address| {
        let url = format!(
            "jdbc:postgresql://127.0.0.1:{}/{}?user={}",
            address.port, address.database, address.user
        );
        let mut java = Command::new("java");
        java.args(["-Dfile.encoding=UTF-8", "-cp"])
            .arg(jars.join("*"))
            .arg(example("java").join("Emit.java"))
            .env("DATABASE_URL", url);
        java
    });
}
