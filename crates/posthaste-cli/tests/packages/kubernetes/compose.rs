//! The file for Compose, parsed by Compose's own parser, and what it says tried with real servers.

use std::time::Duration;

use posthaste_testkit::{judges::kubernetes_tool, process::run};
use serde_json::Value;

use crate::made::root;

const FILE: &str = "packaging/compose.yaml";
const LIMIT: Duration = Duration::from_secs(120);
const OURS: [&str; 2] = ["init", "relay"];

/// The file as Compose understands it: long forms, and no variable left.
fn project() -> Value {
    let mut parser = kubernetes_tool("compose-spec");
    parser.args(["-format", "json", FILE]).current_dir(root());
    let parsed = run(&mut parser, LIMIT).expect_status(0).stdout;
    serde_json::from_str(&parsed).unwrap()
}

#[test]
fn compose_understands_its_file_and_starts_services_in_order() {
    let services = &project()["services"];
    for (service, before, condition) in [
        ("init", "postgres", "service_healthy"),
        ("topics", "kafka", "service_healthy"),
        ("relay", "init", "service_completed_successfully"),
        ("relay", "topics", "service_completed_successfully"),
    ] {
        let found = &services[service]["depends_on"][before]["condition"];
        assert_eq!(*found, condition, "{service} after {before}");
    }
    for service in ["postgres", "kafka", "relay"] {
        let health = &services[service]["healthcheck"]["test"][0];
        assert_eq!(*health, "CMD", "{service}");
    }
    for service in OURS {
        let image = format!("posthaste/posthaste:{}", env!("CARGO_PKG_VERSION"));
        assert_eq!(services[service]["image"], image, "{service}");
    }
    // The numbers have no access control.
    assert_eq!(services["relay"]["ports"][0]["host_ip"], "127.0.0.1");
}

/// Compose must not kill a relay that is still allowed to finish.
#[test]
fn compose_waits_longer_for_the_relay_than_the_relay_for_itself() {
    let grace = &project()["services"]["relay"]["stop_grace_period"];
    let grace = grace.as_str().unwrap().trim_end_matches('s');
    let default = &super::chart::Release::by_default().configuration();
    assert!(default.contains("shutdown_timeout = \"10s\""), "{default}");
    assert!(grace.parse::<u64>().unwrap() > 10, "{grace}");
}

/// The roles, the commands and the environment of the services, and the sample events, against a
/// PostgreSQL and a Kafka of the test's own. Only addresses are replaced.
#[cfg(feature = "kafka")]
#[test]
fn the_services_do_what_the_file_says() {
    use std::{process::Command, thread, time::Instant};

    use posthaste_testkit::{
        ports::Port,
        process::Running,
        servers::{kafka::KafkaServer, postgres::PostgresServer},
    };
    use posthaste_torture::relay::command as posthaste;

    let project = project();
    let postgres = PostgresServer::builder().setting("fsync", "off").start();
    let kafka = KafkaServer::start();
    let (database, port) = (postgres.create_database(), Port::reserve());
    database.psql(project["configs"]["roles"]["content"].as_str().unwrap());
    let here = |text: &str| {
        let at = format!("@127.0.0.1:{}/{}", postgres.port(), database.name());
        text.replace("@postgres/shop", &at)
            .replace("kafka:9092", &kafka.bootstrap())
            .replace("0.0.0.0:9187", &format!("0.0.0.0:{}", port.number()))
    };
    let service = |name: &str| {
        let service = &project["services"][name];
        let mut command = posthaste(&[]);
        let args = service["command"].as_array().unwrap().iter();
        command.args(args.map(|arg| here(arg.as_str().unwrap())));
        for (name, value) in service["environment"].as_object().unwrap() {
            command.env(name, here(value.as_str().unwrap()));
        }
        command
    };
    let topics: Vec<_> = project["services"]["topics"]["command"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|arg| arg.as_str()?.strip_prefix("--topic="))
        .collect();
    kafka.create_topics(&topics, 6, &[]);
    run(&mut service("init"), LIMIT).expect_status(0);
    let relay = Running::start(&mut service("relay"));

    let text = super::files::read(FILE).replace("\\\n#", "");
    let typed = text.lines().find(|line| line.contains(" exec postgres "));
    let (_, sql) = typed.unwrap().split_once("--command \"").unwrap();
    let mut psql = Command::new(PostgresServer::client_programs().join("psql"));
    let shop = format!(
        "postgres://shop@127.0.0.1:{}/{}",
        postgres.port(),
        database.name()
    );
    psql.args([&shop, "--command", sql.strip_suffix('"').unwrap()]);
    run(&mut psql, LIMIT).expect_status(0);

    relay.wait_for_stderr("monitoring is at", LIMIT);
    let since = Instant::now();
    while kafka.high_watermarks("orders").iter().sum::<i64>() < 1000 {
        assert!(since.elapsed() < LIMIT, "events wait: {}", relay.stderr());
        thread::sleep(Duration::from_millis(50));
    }
    let ready = format!("http://127.0.0.1:{}/readyz", port.number());
    run(&mut posthaste(&["health", "--url", &ready]), LIMIT).expect_status(0);
    relay.terminate();
    relay.wait(LIMIT).expect_status(0);
    assert_eq!(kafka.consume(&["orders"]).len(), 1000);
}
