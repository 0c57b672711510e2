//! Alarms and their way to Prometheus.

use posthaste_testkit::judges::promtool;
use serde_json::Value;

use super::{
    chart::{CHART, EVERYTHING, Release},
    files::{assert_made, blocks, yaml},
};

const GUIDE: &str = "docs/operating.md";

#[test]
fn the_charts_alarms_are_those_of_the_operators_guide() {
    let rules = blocks(GUIDE, "yaml").remove(0);
    let head = format!("# The rules of {GUIDE}; a test writes and compares them.\n");
    assert_made(&format!("{CHART}/alarms.yaml"), &(head + &rules));
    let guide = &yaml(&rules)[0]["groups"];
    let release = Release::of(EVERYTHING);
    let rendered = &release.the("PrometheusRule")["spec"]["groups"];
    assert_eq!(guide.as_array().unwrap().len(), 1);
    assert_eq!(rendered[0], guide[0]);
    let everything = format!("{CHART}/{EVERYTHING}");
    let without = [
        "--values",
        &everything,
        "--set",
        "prometheusRule.general=false",
    ];
    let without = Release::with(&without);
    let groups = &without.the("PrometheusRule")["spec"]["groups"];
    assert_eq!(*groups, Value::from(&rendered.as_array().unwrap()[1..]));
}

#[test]
fn prometheus_understands_the_rules() {
    let release = Release::of(EVERYTHING);
    let rules = &release.the("PrometheusRule")["spec"];
    // JSON is YAML, too.
    promtool(&["check", "rules", "/dev/stdin"], &rules.to_string());
}

/// The operator labels what a ServiceMonitor finds with the names of namespace and Service.
#[test]
fn the_alarm_for_no_relay_names_the_service_that_is_scraped() {
    let release = Release::of(EVERYTHING);
    let service = release.the("Service");
    let name = service["metadata"]["name"].as_str().unwrap();
    let groups = &release.the("PrometheusRule")["spec"]["groups"];
    let expected = format!(r#"absent(posthaste_ready{{namespace="shop",service="{name}"}})"#);
    assert_eq!(groups[1]["rules"][0]["expr"], expected);
    let monitor = &release.the("ServiceMonitor")["spec"];
    let labels = service["metadata"]["labels"].as_object().unwrap();
    let wanted = monitor["selector"]["matchLabels"].as_object().unwrap();
    assert!(wanted.iter().all(|(label, value)| labels[label] == *value));
    assert_eq!(
        monitor["endpoints"][0]["port"],
        service["spec"]["ports"][0]["name"]
    );
}

#[test]
fn only_the_named_pods_may_read_the_numbers() {
    let port = |policy: &Value| policy["spec"]["ingress"][0]["ports"][0]["port"].clone();
    let by_default = Release::by_default();
    let policy = by_default.the("NetworkPolicy");
    assert_eq!(port(policy), "http");
    assert_eq!(policy["spec"]["policyTypes"].to_string(), r#"["Ingress"]"#);
    let everything = Release::of(EVERYTHING);
    let policy = &everything.the("NetworkPolicy");
    assert_eq!(port(policy), "http");
    let from = &policy["spec"]["ingress"][0]["from"][0]["namespaceSelector"]["matchLabels"];
    assert_eq!(from["kubernetes.io/metadata.name"], "monitoring");
    let out = &policy["spec"]["egress"];
    assert_eq!(out[0]["ports"][0]["port"], 53);
    assert_eq!(out[1]["ports"][1]["port"], 9093);
    let nobody = Release::with(&["--set-json", "networkPolicy.from=[]"]);
    let ingress = &nobody.the("NetworkPolicy")["spec"]["ingress"];
    assert_eq!(ingress.to_string(), "[]");
}
