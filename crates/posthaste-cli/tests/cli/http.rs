//! `relay --http`: what those who watch a relay are told, and that watching harms nobody.

use std::{
    fs,
    io::{self, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
};

use posthaste_testkit::{
    judges::promtool,
    long_form,
    process::{Finished, Running, run},
    servers::postgres::PostgresServer,
};
use serde_json::Value;

use crate::harness::{LIMIT, World, says, wait_for};

const ANYWHERE: [&str; 2] = ["--http", "127.0.0.1:0"];

/// A relay that runs and can be asked.
struct Watched {
    relay: Running,
    address: SocketAddr,
}

struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Watched {
    fn start(world: &World, from: &str, to: &str, args: &[&str]) -> Self {
        let command = ["relay", "--from", from, "--to", to];
        Self::of(world.start(&[&command, &ANYWHERE[..], args].concat()))
    }

    /// The relay says where it can be watched.
    fn of(relay: Running) -> Self {
        relay.wait_for_stderr("/metrics", LIMIT);
        let said = relay.stderr();
        let address = said
            .split("http://")
            .nth(1)
            .and_then(|rest| rest.split('/').next());
        let address = address.unwrap().parse().unwrap();
        Self { relay, address }
    }

    fn ask(&self, request: &str) -> Answer {
        self.ask_host("localhost", request)
    }

    fn ask_host(&self, host: &str, request: &str) -> Answer {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        write!(stream, "{request} HTTP/1.1\r\nhost: {host}\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        Answer {
            status: head.split(' ').nth(1).unwrap().parse().unwrap(),
            head: head.to_ascii_lowercase(),
            body: body.to_owned(),
        }
    }

    fn get(&self, path: &str) -> Answer {
        self.ask(&format!("GET {path}"))
    }

    fn readiness(&self) -> (u16, Value) {
        let answer = self.get("/readyz");
        (answer.status, serde_json::from_str(&answer.body).unwrap())
    }

    /// The value of a series, written as it stands in the text.
    fn metric(&self, series: &str) -> Option<f64> {
        value(&self.get("/metrics").body, series)
    }

    /// Waits until a series has this value.
    fn wait_for_metric(&self, series: &str, wanted: f64) {
        wait_for(&format!("{series} {wanted}"), || {
            self.metric(series) == Some(wanted)
        });
    }

    fn stop(self) -> Finished {
        self.relay.terminate();
        self.relay.wait(LIMIT).expect_status(0)
    }
}

fn value(text: &str, series: &str) -> Option<f64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(series));
    lines.find_map(|rest| rest.strip_prefix(' ')?.parse().ok())
}

#[test]
fn every_path_answers_as_it_should_until_the_relay_ends() {
    let world = World::with_outbox();
    let watched = Watched::start(&world, "sqlite:shop.db", "null:", &[]);
    let alive = watched.get("/healthz");
    assert_eq!((alive.status, &*alive.body), (200, "alive\n"));
    let (status, readiness) = watched.readiness();
    assert_eq!((status, &readiness["ready"]), (200, &Value::Bool(true)));
    assert_eq!(readiness["destinations"][0]["name"], "default");
    let metrics = watched.get("/metrics");
    assert_eq!(metrics.status, 200);
    for part in [
        "content-type: text/plain; version=0.0.4; charset=utf-8",
        "connection: close",
        "cache-control: no-store",
    ] {
        assert!(metrics.head.contains(part), "{}", metrics.head);
    }
    let absent = watched.get("/");
    assert_eq!(absent.status, 404);
    assert!(absent.body.contains("/readyz"), "{}", absent.body);
    for path in ["/healthz", "/readyz", "/metrics"] {
        let refused = watched.ask(&format!("POST {path}"));
        assert_eq!(refused.status, 405);
        assert!(
            refused.head.contains("allow: get, head"),
            "{}",
            refused.head
        );
        assert_eq!(watched.ask(&format!("HEAD {path}")).status, 200);
    }
    let address = watched.address;
    watched.stop();
    assert!(TcpStream::connect(address).is_err(), "still listening");
}

#[test]
fn other_machines_are_not_answered_unasked_and_a_port_that_is_taken_ends_the_start() {
    let world = World::with_outbox();
    let relay = ["relay", "--from", "sqlite:shop.db", "--to", "null:"];
    let refused = |address: &str, parts: &[&str]| {
        says(
            &world.ends(&[&relay[..], &["--http", address]].concat(), 2),
            parts,
        );
        world.write("relay.toml", &format!("[relay]\nhttp = \"{address}\"\n"));
        let from_file = [&relay[..], &["--config", "relay.toml"]].concat();
        says(&world.ends(&from_file, 2), parts);
    };
    for open in ["0.0.0.0:9187", "[::]:9187", "192.0.2.1:9187"] {
        refused(
            open,
            &["access control", "127.0.0.1:9187", "--http-allow-remote"],
        );
    }
    for wrong in ["9187", "localhost:9187", "127.0.0.1:port"] {
        refused(wrong, &["127.0.0.1:9187"]);
    }
    let nowhere = world.ends(&[&relay[..], &["--http-allow-remote"]].concat(), 2);
    says(&nowhere, &["does nothing without --http", "fix: "]);
    let holder = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = holder.local_addr().unwrap().to_string();
    refused(&taken, &[&taken, "in use", "another port"]);
}

#[test]
fn a_file_may_say_where_and_a_flag_wins() {
    let world = World::with_outbox();
    world.write(
        "relay.toml",
        "[relay]\nhttp = \"127.0.0.1:0\"\n[destinations.archive]\nurl = \"null:\"\n",
    );
    let relay = [
        "relay",
        "--from",
        "sqlite:shop.db",
        "--config",
        "relay.toml",
    ];
    let watched = Watched::of(world.start(&relay));
    assert_eq!(watched.readiness().1["destinations"][0]["name"], "archive");
    watched.stop();
    let v6 = Watched::of(world.start(&[&relay[..], &["--http", "[::1]:0"]].concat()));
    assert!(v6.address.is_ipv6());
    assert_eq!(v6.get("/healthz").status, 200);
    v6.stop();
}

fn check_page(page: &str) {
    promtool(&["check", "metrics"], page);
}

#[test]
fn the_guides_alarms_are_rules_and_its_table_names_every_metric() {
    let guide = include_str!("../../../../docs/operating.md");
    let rules = guide.split("```yaml\n").nth(1).unwrap();
    promtool(
        &["check", "rules", "/dev/stdin"],
        rules.split("```").next().unwrap(),
    );
    let world = World::with_outbox();
    let watched = Watched::start(&world, "sqlite:shop.db", "null:", &[]);
    watched.wait_for_metric("posthaste_pending{destination=\"default\"}", 0.0);
    let page = watched.get("/metrics").body;
    let mut served: Vec<_> = page
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next())
        .collect();
    let rows = guide.lines().filter_map(|line| line.strip_prefix("| `"));
    let names = rows.filter_map(|row| row.split('`').next());
    let mut named: Vec<_> = names
        .filter(|name| name.starts_with("posthaste_"))
        .collect();
    served.sort_unstable();
    named.sort_unstable();
    assert_eq!(served, named);
    watched.stop();
}

fn shop_in_postgres(world: &World) -> (&'static PostgresServer, String) {
    let server = PostgresServer::shared(15);
    let url = server.create_database().url();
    world.ends(&["init", "--store", &url], 0);
    (server, url)
}

#[test]
fn the_numbers_are_those_of_the_outbox_and_prometheus_understands_them() {
    let world = World::empty();
    let (_server, url) = shop_in_postgres(&world);
    let sqlite = World::with_outbox();
    for (world, from) in [(&world, url.as_str()), (&sqlite, "sqlite:shop.db")] {
        // A destination that nobody delivers to any more pins events: it is seen too.
        let old = ["--destination", "old", "--until-drained"];
        world.ends(
            &[&["relay", "--from", from, "--to", "null:"], &old[..]].concat(),
            0,
        );
        for (key, payload) in [
            ("a", "1"),
            ("b", "longer than ten bytes"),
            ("b", "2"),
            ("c", "3"),
        ] {
            emit(world, from, key, payload);
        }
        let to = "file:out.jsonl?max_event_bytes=10";
        let watched = Watched::start(world, from, to, &["--attempts", "1"]);
        watched.wait_for_metric("posthaste_parked_total{destination=\"default\"}", 1.0);
        watched.wait_for_metric("posthaste_delivered_total{destination=\"default\"}", 2.0);
        // The store's numbers may be some seconds old.
        watched.wait_for_metric("posthaste_dead{destination=\"default\"}", 1.0);
        let page = watched.get("/metrics").body;
        check_page(&page);
        for (series, wanted) in [
            ("posthaste_read_total{destination=\"default\"}", 4.0),
            ("posthaste_duplicates_total{destination=\"default\"}", 0.0),
            ("posthaste_rejected_total{destination=\"default\"}", 1.0),
            ("posthaste_put_off_total{destination=\"default\"}", 0.0),
            ("posthaste_unavailable_total{destination=\"default\"}", 0.0),
            ("posthaste_unrouted_total{destination=\"default\"}", 0.0),
            ("posthaste_repeats_total{destination=\"default\"}", 0.0),
            ("posthaste_blocked_keys{destination=\"default\"}", 1.0),
            (
                "posthaste_breaker_state{destination=\"default\",state=\"closed\"}",
                1.0,
            ),
            (
                "posthaste_breaker_state{destination=\"default\",state=\"open\"}",
                0.0,
            ),
            ("posthaste_ready{destination=\"default\"}", 1.0),
            (
                "posthaste_commit_to_accepted_seconds_count{destination=\"default\"}",
                2.0,
            ),
            (
                "posthaste_commit_to_accepted_seconds_bucket{le=\"+Inf\",destination=\"default\"}",
                2.0,
            ),
            ("posthaste_parked{destination=\"default\"}", 0.0),
            ("posthaste_pending{destination=\"old\"}", 4.0),
            ("posthaste_pending_exact{destination=\"old\"}", 1.0),
            ("posthaste_store_up", 1.0),
        ] {
            assert_eq!(value(&page, series), Some(wanted), "{series}\n{page}");
        }
        for series in [
            "posthaste_oldest_pending_age_seconds{destination=\"old\"}",
            "posthaste_commit_to_accepted_seconds_sum{destination=\"default\"}",
            "posthaste_retained_bytes",
            "posthaste_relay_lease_seconds_left",
        ] {
            assert!(
                value(&page, series).is_some_and(|v| v > 0.0),
                "{series}\n{page}"
            );
        }
        assert!(page.contains("posthaste_build_info{version="), "{page}");
        assert!(value(&page, "posthaste_ready{destination=\"old\"}").is_none());
        watched.stop();
    }
}

/// Writes an event, with a header.
fn emit(world: &World, store: &str, key: &str, payload: &str) {
    if store.starts_with("sqlite:") {
        return world.emit("t", key, payload);
    }
    let url = store.rsplit('/').next().unwrap();
    PostgresServer::shared(15).psql(
        url,
        &format!(
            "select posthaste.emit(topic => 't', payload => '{payload}', key => '{key}',
                                   headers => array['h', 'header-{payload}'])"
        ),
    );
}

#[test]
fn a_database_that_is_away_leaves_its_numbers_out_and_holds_no_scrape_up() {
    let world = World::empty();
    let server = PostgresServer::builder().setting("fsync", "off").start();
    let url = server.admin_url("postgres");
    world.ends(&["init", "--store", &url], 0);
    let watched = Watched::start(&world, &url, "null:", &[]);
    watched.wait_for_metric("posthaste_pending{destination=\"default\"}", 0.0);
    server.stop_fast();
    watched.wait_for_metric("posthaste_store_up", 0.0);
    let page = watched.get("/metrics").body;
    for absent in [
        "posthaste_pending",
        "posthaste_dead",
        "posthaste_retained_bytes",
    ] {
        assert!(!page.contains(absent), "{absent} is stale:\n{page}");
    }
    check_page(&page);
    let delivered = "posthaste_delivered_total{destination=\"default\"}";
    assert_eq!(value(&page, delivered), Some(0.0));
    assert_eq!(watched.get("/healthz").status, 200);
    wait_for("the reason", || {
        let destination = watched.readiness().1["destinations"][0].clone();
        destination["breaker"] == "waiting" && destination["last_error"].is_string()
    });
    server.start_again();
    watched.wait_for_metric("posthaste_store_up", 1.0);
    watched.wait_for_metric("posthaste_pending{destination=\"default\"}", 0.0);
    watched.stop();
}

#[test]
fn readiness_tells_a_standstill_by_its_destination() {
    let world = World::with_outbox();
    fs::create_dir(world.path("away")).unwrap();
    let watched = Watched::start(&world, "sqlite:shop.db", "file:away/out.jsonl", &[]);
    watched.relay.wait_for_stderr("delivering", LIMIT);
    fs::rename(world.path("away"), world.path("gone")).unwrap();
    world.emit("t", "k", "1");
    let standing = |readiness: &Value| readiness["destinations"][0].clone();
    // The short form does not wait for the half minute itself: that the time runs shows why it
    // ends.
    let red_after = if long_form() { 30.0 } else { 1.0 };
    wait_for("no progress", || {
        let since = &standing(&watched.readiness().1)["seconds_since_progress"];
        since.as_f64().unwrap() >= red_after
    });
    let (status, readiness) = watched.readiness();
    let destination = standing(&readiness);
    let error = destination["last_error"].as_str().unwrap_or_default();
    assert!(error.contains("away/out.jsonl"), "{readiness}");
    assert_ne!(destination["breaker"], "closed", "{readiness}");
    let red = long_form();
    assert_eq!(status, if red { 503 } else { 200 }, "{readiness}");
    assert_eq!(readiness["ready"], !red);
    let page = format!("http://{}/readyz", watched.address);
    let probed = world.ends(&["health", "--url", &page], i32::from(red));
    if red {
        says(
            &probed,
            &[
                "`default` has made no progress for",
                "away/out.jsonl",
                "fix: ",
            ],
        );
    }
    assert_eq!(destination["ready"], !red);
    assert_eq!(
        watched.metric("posthaste_ready{destination=\"default\"}"),
        Some(f64::from(u8::from(!red)))
    );
    fs::rename(world.path("gone"), world.path("away")).unwrap();
    wait_for("progress", || {
        let (status, readiness) = watched.readiness();
        status == 200 && standing(&readiness)["seconds_since_progress"] == 0.0
    });
    assert_eq!(world.payloads("away/out.jsonl"), ["1"]);
    watched.stop();
}

/// As a browser asks for a page of another host whose name was made to lead here.
#[test]
fn the_name_of_another_host_is_not_answered() {
    let world = World::with_outbox();
    let watched = Watched::start(&world, "sqlite:shop.db", "null:", &[]);
    let own = format!("[::1]:{}", watched.address.port());
    for path in ["/healthz", "/readyz", "/metrics"] {
        let refused = watched.ask_host("evil.example:9187", &format!("GET {path}"));
        assert_eq!(refused.status, 421, "{}", refused.body);
        assert!(refused.body.contains("`Host`"), "{}", refused.body);
        assert_eq!(watched.ask_host(&own, &format!("GET {path}")).status, 200);
    }
    watched.stop();
}

/// A kubelet asks for an address of the pod, Prometheus for a name.
#[test]
fn other_machines_are_answered_where_the_operator_allows_it() {
    let world = World::with_outbox();
    let relay = ["relay", "--from", "sqlite:shop.db", "--to", "null:"];
    world.write(
        "relay.toml",
        "[relay]\nhttp = \"0.0.0.0:0\"\nhttp_allow_remote = true\n",
    );
    for allowed in [
        ["--http", "0.0.0.0:0", "--http-allow-remote"].as_slice(),
        &["--config", "relay.toml"],
    ] {
        let watched = Watched::of(world.start(&[&relay[..], allowed].concat()));
        assert_eq!(watched.ask_host("relay-0.shop", "GET /readyz").status, 200);
        watched.stop();
    }
}

#[test]
fn a_probe_is_told_by_health() {
    let world = World::with_outbox();
    let watched = Watched::start(&world, "sqlite:shop.db", "null:", &[]);
    let page = |path: &str| format!("http://{}{path}", watched.address);
    let ready = page("/readyz");
    world.ends(&["health", "--url", &ready], 0);
    world.ends(&["health", "--url", &page("/healthz")], 0);
    let lost = world.ends(&["health", "--url", &page("/ready")], 1);
    says(&lost, &["404", "fix: "]);
    let numbers = world.ends(&["health", "--url", &page("/metrics")], 1);
    says(&numbers, &["200 OK, and not as a relay does", "fix: "]);
    for wrong in ["https://localhost/readyz", "/readyz", "localhost:9187"] {
        says(&world.ends(&["health", "--url", wrong], 2), &["fix: "]);
    }
    watched.stop();
    let secret = ready.replace("//", "//probe:hunter2@");
    let gone = world.ends(&["health", "--url", &secret], 1);
    says(
        &gone,
        &["does not answer", "fix: start the relay with --http"],
    );
    assert!(!gone.stderr.contains("hunter2"), "{gone}");
}

#[test]
fn silent_clients_hold_neither_others_nor_the_relay_up() {
    let world = World::with_outbox();
    let watched = Watched::start(&world, "sqlite:shop.db", "null:", &[]);
    let silent: Vec<_> = (0..40)
        .map(|n| {
            let mut stream = TcpStream::connect(watched.address).unwrap();
            if n % 2 == 0 {
                stream.write_all(b"GET /metrics HTTP/1.1\r\nx: ").unwrap();
            }
            stream
        })
        .collect();
    assert_eq!(watched.get("/healthz").status, 200);
    // The oldest made room, and no more of them than had to.
    silent[20].set_nonblocking(true).unwrap();
    let unanswered = silent[20].peek(&mut [0]).unwrap_err();
    assert_eq!(unanswered.kind(), io::ErrorKind::WouldBlock);
    world.emit("t", "k", "1");
    watched.wait_for_metric("posthaste_delivered_total{destination=\"default\"}", 1.0);
    let address = watched.address;
    watched.stop();
    assert!(TcpStream::connect(address).is_err(), "still listening");
    drop(silent);
}

#[test]
fn no_payload_header_or_secret_is_logged_at_any_level() {
    const MARK: &str = "do-not-log-";
    let world = World::empty();
    let server = PostgresServer::builder().setting("fsync", "off").start();
    let url = server.admin_url("postgres");
    world.ends(&["init", "--store", &url], 0);
    server.create_password_user("guarded", "do-not-log-password");
    server.psql("postgres", "alter role guarded superuser");
    for n in 0..20 {
        let padding = if n == 10 {
            "x".repeat(2_000)
        } else {
            String::new()
        };
        server.psql(
            "postgres",
            &format!(
                "select posthaste.emit(
                     topic => 't', payload => '{MARK}payload{padding}', key => 'k{n}',
                     headers => array['h', '{MARK}header'])"
            ),
        );
    }
    let from = format!(
        "postgres://guarded:do-not-log-password@127.0.0.1:{}/postgres",
        server.port()
    );
    let mut command = world.command(&["relay", "--to", "file:out.jsonl?max_event_bytes=1000"]);
    command.args(["--log", "json", "--attempts", "2", "--backoff", "10ms"]);
    command
        .args(ANYWHERE)
        .env("POSTHASTE_LOG", "trace")
        .env("POSTHASTE_FROM", &from);
    let watched = Watched::of(Running::start(&mut command));
    watched.wait_for_metric("posthaste_dead{destination=\"default\"}", 1.0);
    watched.wait_for_metric("posthaste_delivered_total{destination=\"default\"}", 19.0);
    let told = watched.get("/metrics").body + &watched.get("/readyz").body;
    assert!(!told.contains(MARK), "{told}");
    // The lines about an outage, and about its end.
    server.crash();
    watched.wait_for_metric("posthaste_store_up", 0.0);
    server.start_again();
    watched.wait_for_metric("posthaste_store_up", 1.0);
    let done = watched.stop();
    assert!(world.delivered("out.jsonl").len() >= 19);
    let mut levels = Vec::new();
    for line in done.stderr.lines() {
        let line: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {done}"));
        levels.push(line["level"].as_str().unwrap().to_owned());
    }
    for level in ["INFO", "WARN"] {
        assert!(levels.iter().any(|l| l == level), "{level}: {done}");
    }
    assert!(
        levels.iter().any(|l| l == "TRACE" || l == "DEBUG"),
        "{done}"
    );
    assert!(!done.stderr.contains(MARK), "{done}");
    no_password_is_told(&world, &server, "do-not-log-password");
}

/// Wherever a password of the store or of a destination was given, nothing tells it: no page, no
/// log, no command's answer, and no row.
fn no_password_is_told(world: &World, server: &PostgresServer, password: &str) {
    let host = format!("127.0.0.1:{}/postgres", server.port());
    for (name, from, variable) in [
        ("a", format!("postgres://guarded:{password}@{host}"), ""),
        (
            "b",
            format!("postgres://guarded@{host}?password={password}"),
            "",
        ),
        ("c", format!("postgres://guarded@{host}"), password),
    ] {
        let command = |args: &[&str]| {
            let mut command = world.command(args);
            command
                .env("POSTHASTE_LOG", "trace")
                .env("POSTHASTE_FROM", &from)
                .env("PGPASSWORD", variable);
            command
        };
        let to = format!("amqp://me:{password}@127.0.0.1:1/?exchange=e");
        let relay = ["relay", "--destination", name, "--to", &to];
        let mut relay = command(&relay);
        let watched = Watched::of(Running::start(relay.args(ANYWHERE)));
        watched.relay.wait_for_stderr("not reachable yet", LIMIT);
        watched.relay.wait_for_stderr("claimed", LIMIT);
        let mut told = watched.get("/metrics").body + &watched.get("/readyz").body;
        for args in [
            &["status"][..],
            &["status", "--json"],
            &["relays", "--json"],
            &["destination", "list", "--json"],
            &["destination", "pause", name],
            &["dead", "list", "--json"],
            &["init"],
        ] {
            let answer = run(&mut command(args), LIMIT).expect_status(0);
            told += &(answer.stdout + &answer.stderr);
        }
        told += &watched.stop().stderr;
        for table in ["audit", "destinations", "relays", "settings"] {
            let rows = format!("select * from posthaste.{table}");
            told += &server.psql("postgres", &rows);
        }
        assert!(told.contains("amqp://me:***@127.0.0.1:1/"), "{told}");
        assert!(!told.contains(password), "{told}");
    }
}
