//! A database that is a copy of another one is not relayed as if it were the original, until a new
//! era begins.

use std::{path::Path, process::Command};

use posthaste_testkit::{process::run, servers::postgres::PostgresServer};

use posthaste_torture::{
    database::{Database, Plan},
    postgres::Postgres,
    relay::{Delivered, LIMIT, RelayCommand, posthaste, posthaste_json},
};

/// An outbox with a delivered part and a backlog, as a backup finds it.
async fn original(delivered: &Delivered) -> Postgres {
    let database = Postgres::new(PostgresServer::shared(15));
    let mut writer = database.writer().await.unwrap();
    writer.transact(&Plan::of("before", 50)).await.unwrap();
    RelayCommand::new(&database.url(), delivered).drain(0);
    writer.transact(&Plan::of("backlog", 50)).await.unwrap();
    database
}

/// Refused with the fix, and nothing is delivered; the original goes on as if nothing had been.
async fn is_refused(copy: &str, original: &Postgres, delivered: &Delivered) {
    let elsewhere = Delivered::new();
    let refused = RelayCommand::new(copy, &elsewhere).drain(2);
    assert!(refused.stderr.contains("copy"), "{refused}");
    assert!(
        refused
            .stderr
            .contains("posthaste init --store URL --new-era")
            && !refused.stderr.contains("drop"),
        "no fix is named:\n{refused}"
    );
    for command in [
        &["status", "--store", copy][..],
        &["relays", "--store", copy],
        &["init", "--store", copy],
    ] {
        let refused = posthaste(command);
        assert_ne!(refused.status.code(), Some(0), "{refused}");
        assert!(refused.stderr.contains("--new-era"), "{refused}");
    }
    assert_eq!(elsewhere.lines(), 0);
    RelayCommand::new(&original.url(), delivered).drain(0);
    assert_eq!(delivered.lines(), original.committed().await);
}

/// After a new era has begun, exactly what was not delivered is delivered from the copy.
fn goes_on(copy: &str) {
    let plan = posthaste(&["init", "--store", copy, "--new-era"]).expect_status(0);
    assert!(plan.stdout.contains("Nothing was changed"), "{plan}");
    assert!(plan.stdout.contains("50 events pending"), "{plan}");
    assert!(plan.stdout.contains("at most 0 events"), "{plan}");
    let elsewhere = Delivered::new();
    RelayCommand::new(copy, &elsewhere).drain(2);
    let begun = posthaste_json(&["init", "--store", copy, "--new-era", "--yes"]);
    assert_eq!(begun["new_era"]["destinations"][0]["pending"], 50);
    RelayCommand::new(copy, &elsewhere).drain(0);
    assert_eq!(elsewhere.lines(), 50);
    assert!(!elsewhere.holds("\"before\"") && elsewhere.holds("\"backlog\""));
    let again = posthaste(&["init", "--store", copy, "--new-era", "--yes"]).expect_status(0);
    assert!(again.stdout.contains("no copy"), "{again}");
    assert_eq!(posthaste_json(&["status", "--store", copy])["pending"], 0);
}

#[tokio::test]
async fn a_restored_dump_with_a_backlog_is_refused() {
    let delivered = Delivered::new();
    let original = original(&delivered).await;
    let programs = PostgresServer::client_programs();
    let dump = delivered.directory().join("dump");
    client(
        &programs.join("pg_dump"),
        &["-Fc", "-f", dump.to_str().unwrap(), &original.url()],
    );
    let copy = PostgresServer::shared(15).create_database();
    client(
        &programs.join("pg_restore"),
        &["--exit-on-error", "-d", &copy.url(), dump.to_str().unwrap()],
    );
    assert_eq!(copy.psql("select count(*) from posthaste.outbox"), "100");
    is_refused(&copy.url(), &original, &delivered).await;
    goes_on(&copy.url());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_template_copy_is_refused() {
    let delivered = Delivered::new();
    let original = original(&delivered).await;
    let (server, name) = (PostgresServer::shared(15), original.name());
    let copy = format!("{name}_copy");
    // PostgreSQL waits some seconds for sessions of the template to end: ours are dropped.
    server.psql(
        "postgres",
        &format!("create database {copy} template {name}"),
    );
    is_refused(&server.admin_url(&copy), &original, &delivered).await;
    goes_on(&server.admin_url(&copy));
}

fn client(program: &Path, args: &[&str]) {
    run(Command::new(program).args(args), LIMIT).expect_status(0);
}
