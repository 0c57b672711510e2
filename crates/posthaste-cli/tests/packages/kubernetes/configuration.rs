//! The configuration file of the chart, before the relay itself.

use std::{collections::BTreeSet, fs, time::Duration};

use posthaste_testkit::{
    ports::Port,
    process::{Finished, Running, run},
};
use posthaste_torture::relay::command as posthaste;
use serde_json::Value;

use super::{
    chart::{CHART, EXISTING_SECRETS, Release},
    files::read,
};

/// Only what hangs meets it, on a busy machine too.
const LIMIT: Duration = Duration::from_secs(120);

/// As the pod does: the file of the ConfigMap, the addresses of the Secret, and then the probes.
#[test]
fn the_relay_runs_with_the_charts_configuration_and_answers_its_probes() {
    let folder = tempfile::tempdir().unwrap();
    let database = format!("sqlite:{}", folder.path().join("shop.db").display());
    run(&mut posthaste(&["init", "--store", &database]), LIMIT).expect_status(0);
    let port = Port::reserve();
    let at_port = format!("http.port={}", port.number());
    let release = Release::with(&["--set", &at_port]);
    let file = folder.path().join("posthaste.toml");
    fs::write(&file, release.configuration()).unwrap();
    let args = release.container()["args"].as_array().unwrap();
    let args: Vec<_> = args
        .iter()
        .map(|arg| match arg.as_str().unwrap() {
            "/etc/posthaste/posthaste.toml" => file.to_str().unwrap(),
            "$(POD_NAME)" => "posthaste-5d9c-abcde",
            arg => arg,
        })
        .collect();
    let mut command = posthaste(&args);
    command
        .env("DATABASE_URL", &database)
        .env("BROKER_URL", "null:");
    let relay = Running::start(&mut command);
    relay.wait_for_stderr("monitoring is at", LIMIT);
    for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
        let path = &release.container()[probe]["httpGet"]["path"];
        let url = format!(
            "http://localhost:{}{}",
            port.number(),
            path.as_str().unwrap()
        );
        run(&mut posthaste(&["health", "--url", &url]), LIMIT).expect_status(0);
    }
    let relays = posthaste(&["relays", "--json", "--store", &database])
        .output()
        .unwrap();
    let relays: Value = serde_json::from_slice(&relays.stdout).unwrap();
    assert_eq!(relays["relays"][0]["name"], "posthaste-5d9c-abcde");
    relay.terminate();
    relay.wait(LIMIT).expect_status(0);
}

/// The answer of `posthaste check` to a configuration whose brokers and database are not there.
fn checked(configuration: &str, variables: &[(&str, &str)]) -> Finished {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("posthaste.toml");
    fs::write(&file, configuration).unwrap();
    let mut command = posthaste(&["check", "--config", file.to_str().unwrap()]);
    command.env_remove("KAFKA_PASSWORD");
    command
        .env("DATABASE_URL", "sqlite:none.db")
        .envs(variables.iter().copied());
    run(command.current_dir(folder.path()), LIMIT).expect_status(2)
}

fn assert_understood(checked: &Finished, destinations: &[&str]) {
    // Only the things that it leads to are not there.
    for known in ["none.db does not exist"].iter().chain(destinations) {
        assert!(checked.stdout.contains(known), "{checked}");
    }
}

/// Of a file with two destinations, and references inside of addresses.
#[test]
fn the_relay_understands_destinations_and_routes() {
    let configuration = Release::of(EXISTING_SECRETS).configuration();
    let nowhere = configuration.replace("kafka:9093", "127.0.0.1:1");
    assert_ne!(nowhere, configuration);
    let variables = [
        ("KAFKA_USER", "posthaste"),
        ("RABBITMQ_URL", "amqp://127.0.0.1:1/%2f?exchange=events"),
        ("KAFKA_PASSWORD", "geheim"),
    ];
    let missing = checked(&nowhere, &variables[..2]).stderr;
    assert!(missing.contains("`KAFKA_PASSWORD` is not set"), "{missing}");
    let away = checked(&nowhere, &variables);
    assert_understood(&away, &["`orders` (kafka)", "`audit` (rabbitmq)"]);
}

#[test]
fn the_relay_understands_the_example_for_kustomize() {
    let example = "packaging/kustomize/example";
    let addresses = read(&format!("{example}/addresses.env"));
    let addresses = addresses.replace("//kafka:9092", "//127.0.0.1:1");
    let addresses = addresses.replace("//rabbitmq/", "//127.0.0.1:1/");
    let variables = addresses.lines().map(|line| line.split_once('=').unwrap());
    let variables: Vec<_> = variables
        .filter(|(name, _)| *name != "DATABASE_URL")
        .collect();
    assert!(variables.iter().all(|(_, url)| url.contains("127.0.0.1:1")));
    let away = checked(&read(&format!("{example}/posthaste.toml")), &variables);
    assert_understood(&away, &["`orders` (kafka)", "`mail` (rabbitmq)"]);
}

/// The chart's own section must not take them in.
#[test]
fn keys_at_the_head_of_the_configuration_belong_to_no_section() {
    let routes = "routes = [{ to = [\"audit\"] }]\n[destinations.audit]\nurl = \"null:\"\n";
    let release = Release::with(&["--set-literal", &format!("config={routes}")]);
    let configuration: toml::Table = release.configuration().parse().unwrap();
    assert!(configuration["routes"].is_array(), "{configuration}");
    assert!(configuration["relay"]["http"].is_str(), "{configuration}");
}

/// The chart sets some itself, and they can be set in no other way.
#[test]
fn every_setting_of_a_relay_is_known_to_the_chart() {
    let example: toml::Table = read("crates/posthaste-cli/posthaste.example.toml")
        .parse()
        .unwrap();
    let example: BTreeSet<_> = example["relay"]
        .as_table()
        .unwrap()
        .keys()
        .cloned()
        .collect();
    let schema = read(&format!("{CHART}/values.schema.json"));
    let schema: Value = serde_json::from_str(&schema).unwrap();
    let settings = &schema["properties"]["relay"]["properties"]["settings"]["properties"];
    let mut known: BTreeSet<_> = settings.as_object().unwrap().keys().cloned().collect();
    for own in ["name", "shutdown_timeout", "http", "http_allow_remote"] {
        assert!(known.insert(own.to_owned()), "{own} is the chart's own");
    }
    assert_eq!(known, example);
}
