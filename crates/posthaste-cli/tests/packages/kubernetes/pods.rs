//! How the pods run: their rights, probes and names, how they stop, and where passwords are.

use serde_json::{Value, json};

use super::chart::{EVERYTHING, EXISTING_SECRETS, Release};

/// The pods of relays and of the Job.
fn pods(release: &Release) -> Vec<&Value> {
    let pods = release.objects().iter();
    let pods = pods.map(|object| &object["spec"]["template"]["spec"]);
    pods.filter(|pod| pod.is_object()).collect()
}

#[test]
fn pods_have_no_rights() {
    let releases = [
        Release::by_default(),
        Release::of(EVERYTHING),
        Release::of(EXISTING_SECRETS),
    ];
    let mut seen = 0;
    for pod in releases.iter().flat_map(pods) {
        seen += 1;
        assert_eq!(pod["automountServiceAccountToken"], false);
        let of_pod = &pod["securityContext"];
        assert_eq!(of_pod["runAsNonRoot"], true);
        assert_eq!(of_pod["runAsUser"], 65532);
        assert_eq!(of_pod["seccompProfile"], json!({"type": "RuntimeDefault"}));
        for container in pod["containers"].as_array().unwrap() {
            let expected = json!({
                "allowPrivilegeEscalation": false,
                "readOnlyRootFilesystem": true,
                "capabilities": {"drop": ["ALL"]},
            });
            assert_eq!(container["securityContext"], expected);
            assert!(container["resources"]["limits"]["memory"].is_string());
        }
    }
    assert_eq!(seen, 5, "pods of relays and of Jobs");
    let account = Release::by_default();
    let account = account.the("ServiceAccount");
    assert_eq!(account["automountServiceAccountToken"], false);
}

#[test]
fn a_pod_is_killed_only_after_its_relay_had_its_time_to_stop() {
    for seconds in [1, 10, 600] {
        let timeout = format!("relay.shutdownTimeoutSeconds={seconds}");
        let release = Release::with(&["--set", &timeout]);
        let configured = release.configuration();
        let configured: toml::Table = configured.parse().unwrap();
        let configured = configured["relay"]["shutdown_timeout"].as_str();
        assert_eq!(configured, Some(&*format!("{seconds}s")));
        let grace = release.pod()["terminationGracePeriodSeconds"].as_u64();
        assert!(grace >= Some(seconds + 5), "{grace:?} for {seconds} s");
        assert!(release.container()["lifecycle"].is_null(), "a preStop hook");
    }
}

#[test]
fn a_relay_has_its_pods_name() {
    let release = Release::by_default();
    let container = release.container();
    let args: Vec<_> = container["args"].as_array().unwrap().iter().collect();
    let expected = [
        "relay",
        "--config",
        "/etc/posthaste/posthaste.toml",
        "--name",
        "$(POD_NAME)",
    ];
    assert_eq!(args, expected);
    let name = &container["env"][0];
    assert_eq!(name["name"], "POD_NAME");
    assert_eq!(name["valueFrom"]["fieldRef"]["fieldPath"], "metadata.name");
}

#[test]
fn probes_ask_the_port_that_the_relay_listens_on() {
    for release in [Release::by_default(), Release::of(EXISTING_SECRETS)] {
        let container = release.container();
        let configuration: toml::Table = release.configuration().parse().unwrap();
        let http = configuration["relay"]["http"].as_str().unwrap();
        let (_, port) = http.rsplit_once(':').unwrap();
        let ports = &container["ports"];
        assert_eq!(ports[0]["name"], "http");
        assert_eq!(ports[0]["containerPort"].to_string(), port);
        let service = &release.the("Service")["spec"];
        assert_eq!(service["ports"][0]["port"].to_string(), port);
        assert_eq!(service["publishNotReadyAddresses"], true);
        for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
            assert_eq!(container[probe]["httpGet"]["port"], "http", "{probe}");
        }
        for probe in ["startupProbe", "livenessProbe"] {
            assert_eq!(container[probe]["httpGet"]["path"], "/healthz", "{probe}");
        }
    }
    let path = |release: Release| {
        let probe = &release.container()["readinessProbe"];
        probe["httpGet"]["path"].as_str().unwrap().to_owned()
    };
    assert_eq!(path(Release::by_default()), "/readyz");
    assert_eq!(path(Release::of(EXISTING_SECRETS)), "/healthz");
}

/// A relay proves nothing before it had keys, stood still with them, and was asked.
#[test]
fn a_rollout_waits_until_readiness_means_something() {
    let release = Release::by_default();
    let spec = &release.the("Deployment")["spec"];
    let probe = &release.container()["readinessProbe"];
    let seconds = |name: &str| probe[name].as_u64().unwrap();
    let (first_keys, standstill) = (20, 30);
    let noticed = first_keys + standstill + seconds("periodSeconds") * seconds("failureThreshold");
    let waits = spec["minReadySeconds"].as_u64().unwrap();
    assert!(
        waits >= noticed + 10,
        "{waits} s, and a failure is noticed after {noticed} s"
    );
    let expected = json!({"maxSurge": 1, "maxUnavailable": 0});
    assert_eq!(spec["strategy"]["rollingUpdate"], expected);
    let budget = &release.the("PodDisruptionBudget")["spec"];
    assert_eq!(budget["unhealthyPodEvictionPolicy"], "AlwaysAllow");
}

#[test]
fn passwords_are_in_secrets_alone() {
    let release = Release::of(EVERYTHING);
    let (secrets, others): (Vec<_>, Vec<_>) = release
        .objects()
        .iter()
        .partition(|object| object["kind"] == "Secret");
    for password in ["hidden-1", "hidden-2", "hidden-3"] {
        let holds = |object: &&Value| object.to_string().contains(password);
        assert_eq!(secrets.iter().filter(|s| holds(s)).count(), 1, "{password}");
        assert!(!others.iter().any(holds), "{password} is no secret");
    }
    let from = |release: &Release| {
        let secret = &release.container()["envFrom"][0]["secretRef"]["name"];
        secret.as_str().unwrap().to_owned()
    };
    assert_eq!(from(&release), "events");
    assert_eq!(from(&Release::of(EXISTING_SECRETS)), "addresses");
    assert_eq!(from(&Release::by_default()), "posthaste");
}

#[test]
fn the_job_makes_the_outbox_before_the_relays_with_a_secret_of_its_own() {
    for (values, secret, key) in [
        (EVERYTHING, "events-init", "ADMIN_DATABASE_URL"),
        (EXISTING_SECRETS, "administrator", "url"),
    ] {
        let release = Release::of(values);
        let job = release.the("Job");
        let hooks = &job["metadata"]["annotations"]["helm.sh/hook"];
        assert_eq!(*hooks, "pre-install,pre-upgrade");
        let pod = &job["spec"]["template"];
        let container = &pod["spec"]["containers"][0];
        let address = &container["env"][0];
        assert_eq!(address["name"], "POSTHASTE_FROM");
        let expected = json!({"name": secret, "key": key});
        assert_eq!(address["valueFrom"]["secretKeyRef"], expected);
        assert!(container["envFrom"].is_null(), "the relays' addresses");
        // The relays' selectors must not take the Job's pods.
        let selector = &release.the("Deployment")["spec"]["selector"]["matchLabels"];
        let labels = &pod["metadata"]["labels"];
        assert_ne!(
            selector["app.kubernetes.io/component"],
            labels["app.kubernetes.io/component"]
        );
    }
    let everything = Release::of(EVERYTHING);
    let args = &everything.the("Job")["spec"]["template"]["spec"]["containers"][0]["args"];
    let expected = json!([
        "init",
        "--writer",
        "shop",
        "--relay",
        "posthaste",
        "--retention",
        "48h"
    ]);
    assert_eq!(*args, expected);
}
