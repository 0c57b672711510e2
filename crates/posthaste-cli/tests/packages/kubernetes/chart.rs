//! The chart as Helm renders it.

use std::time::Duration;

use posthaste_testkit::{
    judges::{kubeconform, kubernetes_tool},
    process::{Finished, run},
};
use serde_json::Value;

use super::files::{read, yaml};
use crate::made::root;

pub(super) const CHART: &str = "packaging/helm/posthaste";
pub(super) const EVERYTHING: &str = "ci/everything-values.yaml";
pub(super) const EXISTING_SECRETS: &str = "ci/existing-secrets-values.yaml";
/// `helm template` asks no cluster for its version.
pub(super) const ON_KUBERNETES: [&str; 2] = ["--kube-version", "1.37.0"];
/// Far more than a program takes that reads a few files.
const LIMIT: Duration = Duration::from_secs(60);

/// The manifests of a release.
pub(super) struct Release {
    pub(super) text: String,
    objects: Vec<Value>,
}

impl Release {
    /// With the chart's own values.
    pub(super) fn by_default() -> Self {
        Self::with(&[])
    }

    /// With the values of a file of the chart.
    pub(super) fn of(values: &str) -> Self {
        Self::with(&["--values", &format!("{CHART}/{values}")])
    }

    pub(super) fn with(options: &[&str]) -> Self {
        let text = helm_template(options).expect_status(0).stdout;
        let objects = yaml(&text);
        Self { text, objects }
    }

    pub(super) fn objects(&self) -> &[Value] {
        &self.objects
    }

    pub(super) fn kinds(&self) -> Vec<&str> {
        let kinds = self.objects.iter().map(|object| object["kind"].as_str());
        kinds.map(Option::unwrap).collect()
    }

    /// The only object of this kind.
    pub(super) fn the(&self, kind: &str) -> &Value {
        let mut objects = self.objects.iter().filter(|object| object["kind"] == kind);
        let found = objects.next().unwrap_or_else(|| panic!("no {kind}"));
        assert!(objects.next().is_none(), "several of {kind}");
        found
    }

    /// The pod's template of the relays.
    pub(super) fn pod(&self) -> &Value {
        &self.the("Deployment")["spec"]["template"]["spec"]
    }

    /// The relay's container.
    pub(super) fn container(&self) -> &Value {
        &self.pod()["containers"][0]
    }

    /// The configuration file that the relay reads.
    pub(super) fn configuration(&self) -> String {
        let file = &self.the("ConfigMap")["data"]["posthaste.toml"];
        file.as_str().expect("a file").to_owned()
    }
}

pub(super) fn helm_template(options: &[&str]) -> Finished {
    helm_template_as("posthaste", options)
}

/// Of a release with this name.
pub(super) fn helm_template_as(name: &str, options: &[&str]) -> Finished {
    let mut helm = kubernetes_tool("helm");
    helm.args(["template", name, CHART, "--namespace", "shop"]);
    helm.args(ON_KUBERNETES);
    run(helm.args(options).current_dir(root()), LIMIT)
}

#[test]
fn helm_finds_no_fault_in_the_chart() {
    for values in ["values.yaml", EVERYTHING, EXISTING_SECRETS] {
        let mut helm = kubernetes_tool("helm");
        helm.args(["lint", "--strict", CHART, "--values"]);
        helm.arg(format!("{CHART}/{values}")).current_dir(root());
        let said = run(&mut helm, LIMIT).expect_status(0).stdout;
        assert!(said.contains("0 chart(s) failed"), "{said}");
    }
}

#[test]
fn kubernetes_knows_every_field_of_what_is_rendered() {
    let releases = [
        Release::by_default(),
        Release::of(EVERYTHING),
        Release::of(EXISTING_SECRETS),
    ];
    let objects = releases.iter().map(|release| release.objects().len());
    let objects: Vec<_> = objects.collect();
    assert_eq!(objects, [6, 12, 4]);
    let all: String = releases.into_iter().map(|release| release.text).collect();
    assert_eq!(kubeconform(&all), objects.iter().sum::<usize>());
}

/// YAML takes such names for numbers and for truth values where they are not quoted.
#[test]
fn names_stay_names() {
    let names = [
        "nameOverride=true",
        "fullnameOverride=no",
        "secret.name=123",
        "serviceAccount.name=1e3",
        "image.repository=0x1",
        "topologySpread.keys={1}",
        "priorityClassName=1",
        "autoscaling.metric.name=1",
        "init.existingSecretKey=1",
    ];
    let options: Vec<_> = names
        .iter()
        .flat_map(|name| ["--set-string", name])
        .collect();
    let values = format!("{CHART}/{EVERYTHING}");
    for secret in [
        "init.existingSecret=1,init.adminUrl=",
        "init.adminUrl=postgres://admin@db/shop",
    ] {
        let more = ["--values", &values, "--set-string", secret];
        let given = [&more, &options[..]].concat();
        let manifests = helm_template_as("123", &given).expect_status(0).stdout;
        assert_eq!(kubeconform(&manifests), yaml(&manifests).len());
    }
}

#[test]
#[should_panic(expected = "additional properties 'replica' not allowed")]
fn kubernetes_refuses_a_field_that_it_does_not_know() {
    let text = Release::by_default().text;
    kubeconform(&text.replace("  replicas: 2\n", "  replica: 2\n"));
}

#[test]
#[should_panic(expected = "additional properties 'exprs' not allowed")]
fn the_operator_refuses_a_field_that_it_does_not_know() {
    let text = Release::of(EVERYTHING).text;
    kubeconform(&text.replace(" expr: absent", " exprs: absent"));
}

#[test]
fn values_decide_what_is_rendered() {
    let kinds = |release: &Release| {
        let mut kinds: Vec<_> = release.kinds().into_iter().map(str::to_owned).collect();
        kinds.sort();
        kinds
    };
    let by_default = [
        "ConfigMap",
        "Deployment",
        "NetworkPolicy",
        "PodDisruptionBudget",
        "Service",
        "ServiceAccount",
    ];
    assert_eq!(kinds(&Release::by_default()), by_default);
    let mut everything: Vec<_> = by_default.to_vec();
    everything.extend([
        "HorizontalPodAutoscaler",
        "Job",
        "PrometheusRule",
        // Of the relays, and of the Job.
        "Secret",
        "Secret",
        "ServiceMonitor",
    ]);
    everything.sort_unstable();
    assert_eq!(kinds(&Release::of(EVERYTHING)), everything);
    let existing = ["ConfigMap", "Deployment", "Job", "Service"];
    assert_eq!(kinds(&Release::of(EXISTING_SECRETS)), existing);
}

#[test]
fn versions_are_those_of_the_workspace() {
    let version = env!("CARGO_PKG_VERSION");
    let chart = &yaml(&read(&format!("{CHART}/Chart.yaml")))[0];
    assert_eq!(chart["version"], version);
    assert_eq!(chart["appVersion"], version);
    let image = |release: Release| release.container()["image"].as_str().unwrap().to_owned();
    let by_default = image(Release::by_default());
    assert_eq!(by_default, format!("posthaste/posthaste:{version}"));
    let pushed = read(".github/workflows/release.yml");
    assert!(pushed.contains("IMAGE: docker.io/posthaste/posthaste\n"));
    let by_digest = image(Release::of(EXISTING_SECRETS));
    let expected = "registry.example.com/posthaste@sha256:";
    assert!(by_digest.starts_with(expected), "{by_digest}");
}

/// Two releases in a namespace share no object, and neither's selector takes the other's pods.
#[test]
fn releases_do_not_meet() {
    let named = |name: &str| yaml(&helm_template_as(name, &[]).expect_status(0).stdout);
    let names = |objects: &[Value]| -> Vec<(String, String)> {
        let name = |object: &Value| {
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            (text(&object["kind"]), text(&object["metadata"]["name"]))
        };
        objects.iter().map(name).collect()
    };
    let [first, second] = ["orders", "invoices"].map(named);
    let (first, second) = (names(&first), names(&second));
    assert_eq!(first.len(), second.len());
    assert!(first.iter().all(|name| !second.contains(name)), "{first:?}");
    let selector = |objects: &[Value]| {
        let deployment = objects.iter().find(|o| o["kind"] == "Deployment").unwrap();
        deployment["spec"]["selector"].clone()
    };
    assert_ne!(selector(&named("orders")), selector(&named("invoices")));
}
