//! Payloads in object storage, read where their records say.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    net::TcpListener,
    thread,
    time::Duration,
};

#[cfg(feature = "http")]
use posthaste_testkit::servers::http::WebhookServer;
use posthaste_testkit::{
    process::run,
    proxy::Proxy,
    servers::{
        azurite::{self, AzuriteServer},
        gcs::GcsServer,
        moto::MotoServer,
    },
    tls::{TestCa, rsa_key_pem},
    unique_name,
};

use super::{header, unpacked};
use crate::harness::{LIMIT, World, says, wait_for};

#[test]
fn a_large_payload_is_read_where_its_record_says() {
    let world = World::with_outbox();
    fs::create_dir(world.path("objects")).unwrap();
    let storage = format!("file://{}", world.path("objects").display());
    let large = format!("{{\"text\":\"{}\"}}", "posthaste ".repeat(100_000));
    for payload in [&*large, "small", &*large] {
        world.emit("t", "k", payload);
    }
    let stored = ["--claim-check", &storage, "--compression", "gzip"];
    world.drain("file:stored.jsonl", &stored, 0);
    let lines = world.delivered("stored.jsonl");
    assert_eq!(header(&lines[1], "claim-check"), None);
    let address = header(&lines[0], "claim-check").unwrap();
    assert!(address.starts_with(&storage), "{address}");
    assert_ne!(Some(address), header(&lines[2], "claim-check"));
    assert!(lines[0].payload().unwrap().len() < 500);
    assert_eq!(
        unpacked(&world, "stored.jsonl"),
        [&*large, "small", &*large]
    );

    world.write(
        "posthaste.toml",
        &format!(
            "[stores.main]\nurl = \"sqlite:shop.db\"\n[destinations.a]\nurl = \"null:\"\n\
             claim_check = \"{storage}/absent\"\n"
        ),
    );
    let shown = world.ends(&["check", "--config", "posthaste.toml"], 1);
    for part in [
        "largest event     its own limits",
        "object storage",
        "absent",
        "fix: make the",
    ] {
        assert!(shown.stdout.contains(part), "{part}:\n{}", shown.stdout);
    }
}

/// Checks this storage with these variables, and answers what `check` shows.
fn checked(world: &World, storage: &str, variables: &[(&str, &str)]) -> String {
    world.write(
        "posthaste.toml",
        &format!(
            "[stores.main]\nurl = \"sqlite:shop.db\"\n[destinations.a]\nurl = \"null:\"\n\
             claim_check = \"{storage}\"\n"
        ),
    );
    let mut check = world.command(&["check", "--config", "posthaste.toml"]);
    let ended = run(check.envs(variables.iter().copied()), LIMIT);
    ended.stdout + &ended.stderr
}

/// The end of the row of storage that can be written to.
const WRITABLE: &str = "  yes\n";

#[test]
fn credentials_of_the_environment_count_behind_those_of_the_address() {
    let (world, server) = (World::with_outbox(), AzuriteServer::shared());
    let bucket = unique_name("bucket");
    server.create_bucket(&bucket);
    let with_key = format!("az://{bucket}?{}", server.options());
    let without = with_key.replace(&format!("account_key={}&", azurite::KEY), "");
    let key = ("AZURE_STORAGE_ACCOUNT_KEY", azurite::KEY);
    let other_key = ("AZURE_STORAGE_ACCOUNT_KEY", "b3RoZXI=");
    let token = ("AZURE_STORAGE_TOKEN", "other");
    let [reading, writing] = ["r", "w"].map(azurite::shared_access);
    let reading = ("AZURE_STORAGE_SAS_KEY", &*reading);
    let writing = ("AZURE_STORAGE_SAS_KEY", &*writing);
    for (storage, variable, said) in [
        (&without, key, WRITABLE),
        (&without, other_key, "AuthorizationFailure"),
        (&without, writing, WRITABLE),
        (&without, reading, "AuthorizationPermissionMismatch"),
        (&with_key, other_key, WRITABLE),
        (&with_key, token, WRITABLE),
    ] {
        let shown = checked(&world, storage, &[variable]);
        assert!(shown.contains(said), "{variable:?}:\n{shown}");
        assert!(!shown.contains(azurite::KEY), "{shown}");
        assert!(!shown.contains("sig="), "{shown}");
    }

    let ca = TestCa::new();
    let server = GcsServer::start_tls(&ca.server_certificate(&["localhost"]));
    server.create_bucket("bucket");
    let trusted = ca.certificate_file();
    let storage = format!(
        "gs://bucket?{}&ca_file={}",
        server.options(),
        trusted.display()
    );
    let [ours, other] = ["relay@shop", "other@shop"]
        .map(|account| ca.account_file(account, account, rsa_key_pem()));
    let in_address = format!("{storage}&credentials_file={ours}");
    for (storage, variable, said) in [
        (&storage, &ours, WRITABLE),
        (&storage, &other, "AuthenticationRequired"),
        (&in_address, &other, WRITABLE),
    ] {
        for name in ["GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_SERVICE_ACCOUNT"] {
            let shown = checked(&world, storage, &[(name, variable)]);
            assert!(shown.contains(said), "{name}={variable}:\n{shown}");
        }
    }
}

/// The token of the environment is for the key of the environment.
#[test]
fn a_key_of_the_address_is_sent_without_a_token_of_the_environment() {
    let world = World::with_outbox();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let asked = thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let lines = BufReader::new(stream).lines().map(Result::unwrap);
        lines.take_while(|line| !line.is_empty()).collect()
    });
    let storage =
        format!("s3://bucket?region=r&access_key_id=ours&secret_access_key=s&endpoint={endpoint}");
    checked(&world, &storage, &[("AWS_SESSION_TOKEN", "other")]);
    let head: Vec<String> = asked.join().unwrap();
    let head = head.join("\n").to_lowercase();
    assert!(head.contains("credential=ours/"), "{head}");
    assert!(!head.contains("x-amz-security-token"), "{head}");
}

#[test]
fn an_endpoint_of_the_environment_counts_behind_that_of_the_address() {
    let (world, server) = (World::with_outbox(), MotoServer::shared());
    let bucket = unique_name("bucket");
    server.create_bucket(&bucket);
    let with_endpoint = format!("s3://{bucket}?{}", server.options());
    let without = format!("s3://{bucket}?access_key_id=test&secret_access_key=test");
    for name in ["AWS_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"] {
        let shown = checked(&world, &with_endpoint, &[(name, "http://127.0.0.1:1")]);
        assert!(shown.contains(WRITABLE), "{name}:\n{shown}");
        for wrong in ["secret", "", "http://h:99999"] {
            let shown = checked(&world, &without, &[(name, wrong)]);
            assert!(shown.contains("with host and port"), "{name}:\n{shown}");
            assert!(!shown.contains("panicked"), "{shown}");
        }
    }
    for (storage, variable, said) in [
        (
            &*without,
            ("AWS_REGION", "eu central"),
            "a region is of letters",
        ),
        (
            "az://box",
            ("AZURE_STORAGE_ACCOUNT_NAME", "AccountKey=x"),
            "an account is of",
        ),
        (
            "az://box?account=shop",
            ("AZURE_STORAGE_ACCOUNT_KEY", "sekretkey!!x"),
            "AZURE_STORAGE_ACCOUNT_KEY is not in base64",
        ),
    ] {
        let shown = checked(&world, storage, &[variable]);
        assert!(shown.contains(said), "{variable:?}:\n{shown}");
    }
}

/// For longer than an answer may take, several times over.
#[test]
fn storage_that_stands_still_delays_its_keys_alone_and_uses_up_no_attempt() {
    let (world, server) = (World::with_outbox(), MotoServer::shared());
    let bucket = unique_name("bucket");
    server.create_bucket(&bucket);
    let proxy = Proxy::to_local_port(server.port()).unwrap();
    let storage = format!("s3://{bucket}/large?{}", server.options_through(&proxy));
    world.write(
        "posthaste.toml",
        &format!(
            "[stores.main]\nurl = \"sqlite:shop.db\"\n[relay]\nlease = \"3s\"\n\
             [destinations.default]\nurl = \"file:out.jsonl\"\n\
             claim_check = \"{storage}\"\nclaim_check_bytes = \"10KiB\"\n"
        ),
    );
    proxy.stall();
    let large = |key: &str| format!("{key} ").repeat(10_000);
    for key in ["a", "b"] {
        world.emit("t", key, &large(key));
        world.emit("t", key, "behind it");
    }
    world.emit("t", "c", "first");
    let relay = world.start(&["relay", "--config", "posthaste.toml"]);
    let keys = || -> Vec<_> {
        let lines = world.delivered("out.jsonl").into_iter();
        lines.filter_map(|line| line.key).collect()
    };
    wait_for("the small one", || {
        world.path("out.jsonl").exists() && keys() == ["c"]
    });
    wait_for("the place in doubt", || {
        let destination = &world.json(&["status"])["destinations"][0];
        destination["places"][0]["name"] == "t/claim-check"
    });
    // Some laps of trying again.
    thread::sleep(Duration::from_secs(10));
    world.emit("t", "c", "second");
    wait_for("another small one", || keys() == ["c", "c"]);
    proxy.resume();
    wait_for("all of them", || keys().len() == 6);
    relay.terminate();
    let ended = relay.wait(LIMIT).expect_status(0);
    says(&ended, &["parked=0"]);
    for key in ["a", "b"] {
        let lines = world.delivered("out.jsonl").into_iter();
        let of_key: Vec<_> = lines
            .filter(|line| line.key.as_deref() == Some(key))
            .collect();
        assert_eq!(of_key.len(), 2);
        let address = header(&of_key[0], "claim-check").expect("the large one is first");
        let name = address.strip_prefix(&format!("s3://{bucket}/")).unwrap();
        assert_eq!(server.object(&bucket, name).unwrap(), large(key).as_bytes());
        assert_eq!(of_key[1].payload().unwrap(), b"behind it");
    }
    assert_eq!(server.objects(&bucket).len(), 2);
}

/// The relay dies behind the upload, before its broker has answered.
#[cfg(feature = "http")]
#[test]
fn a_relay_that_is_killed_behind_an_upload_leaves_one_object() {
    let (world, endpoint) = (World::with_outbox(), WebhookServer::start());
    fs::create_dir(world.path("objects")).unwrap();
    let storage = format!("file://{}", world.path("objects").display());
    world.emit("t", "k", &"large ".repeat(100_000));
    endpoint.pause();
    let to = endpoint.url("place") + "?allow_private=true";
    let args = [
        "--from",
        "sqlite:shop.db",
        "--to",
        &to,
        "--claim-check",
        &storage,
    ];
    let relay = world.start(&[&["relay"], &args[..]].concat());
    let objects = || -> Vec<_> {
        let folder = fs::read_dir(world.path("objects/default"));
        let files = folder.into_iter().flatten();
        files.map(|file| file.unwrap().file_name()).collect()
    };
    wait_for("an object", || {
        let found = objects();
        !found.is_empty()
            && found
                .iter()
                .all(|name| !name.to_string_lossy().contains("unfin"))
    });
    relay.kill9();
    let first = objects();
    endpoint.resume();
    world.drain(&to, &["--claim-check", &storage], 0);
    assert_eq!(objects(), first);
    let requests = endpoint.requests("place");
    assert!(!requests.is_empty());
    for request in requests {
        assert!(request.header("ce-headers").unwrap().contains(&storage));
    }
}
