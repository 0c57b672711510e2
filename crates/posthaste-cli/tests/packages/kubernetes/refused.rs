//! Values that the chart does not take.

use super::chart::{helm_template, helm_template_as};

#[test]
fn wrong_values_are_refused_and_named() {
    for (value, named) in [
        ("replicacount=3", "replicacount"),
        ("replicaCount=two", "replicaCount"),
        ("image.tga=1", "tga"),
        ("image.digest=1234", "digest"),
        ("image.pullPolicy=Sometimes", "pullPolicy"),
        ("fullnameOverride=Events", "fullnameOverride"),
        (
            "podLabels.app\\.kubernetes\\.io/name=mine",
            "podLabels/app.kubernetes.io~1name",
        ),
        ("secret.data.NOT-A-VARIABLE=x", "NOT-A-VARIABLE"),
        ("relay.shutdownSpareSeconds=0", "shutdownSpareSeconds"),
        ("relay.shutdownTimeoutSeconds=10s", "shutdownTimeoutSeconds"),
        (
            "terminationGracePeriodSeconds=5",
            "terminationGracePeriodSeconds",
        ),
        ("relay.settings.shutdown_timeout=60s", "shutdown_timeout"),
        ("relay.settings.http=x", "http"),
        ("relay.settings.lease=15", "lease"),
        ("relay.settings.log=xml", "log"),
        ("http.port=80", "port"),
        ("readiness.path=/metrics", "path"),
        ("readiness.minReadySeconds=-1", "minReadySeconds"),
        // A Deployment's time to make progress.
        ("readiness.minReadySeconds=600", "minReadySeconds"),
        (
            "topologySpread.whenUnsatisfiable=Never",
            "whenUnsatisfiable",
        ),
        ("networkPolicy.enabled=perhaps", "enabled"),
        ("autoscaling.metric.value=many", "value"),
        ("init.url=postgres://admin@db/shop", "url"),
        ("init.args=--yes", "args"),
        ("extraEnv=A", "extraEnv"),
    ] {
        let said = helm_template(&["--set", value]).expect_status(1).stderr;
        assert!(said.contains(named), "{value}: {said}");
        assert!(said.contains("values don't meet"), "{value}: {said}");
    }
}

#[test]
fn a_password_in_the_configuration_is_refused() {
    for url in [
        "postgres://posthaste:geheim@db/shop",
        "kafka://user:pa%40ss@kafka:9092",
        "amqp://:x@broker",
        "postgres://db/shop?user=posthaste&password=geheim",
        "postgres://${USER}:geheim@db/shop",
        "postgres://db/shop?sslPassword=geheim",
        "nats://token@nats:4222",
        "kafka://kafka:9092?sasl_password=geheim",
        "https://hooks/in?secret=${NEW},whsec_geheim",
        "https://hooks/in?secret_headers=Authorization: geheim",
    ] {
        let config = format!("config=[destinations.a]\nurl = \"{url}\"\n");
        let said = helm_template(&["--set-literal", &config]).expect_status(1);
        let said = said.stderr;
        assert!(said.contains("holds a password"), "{url}: {said}");
    }
    for url in [
        "postgres://posthaste@db:5432/shop",
        "postgres://posthaste:${PASSWORD}@db/shop",
        "postgres://${USER}:${file:/etc/password}@db/shop?password=${PASSWORD}",
        "kafka://one:9092,two:9092?client_id=a@b",
        "amqp://user@[::1]:5672/%2f",
        "nats://${TOKEN}@nats:4222",
        "https://hooks/in?secret=${NEW},${file:/old}&ca_file=/secret",
    ] {
        let config = format!("config=[destinations.a]\nurl = \"{url}\"\n");
        helm_template(&["--set-literal", &config]).expect_status(0);
    }
}

#[test]
fn contradictions_are_refused() {
    for (values, named) in [
        (
            &[
                "--set-literal",
                "config=[stores.main]\n[ relay ]\nname = \"a\"",
            ][..],
            "[relay]",
        ),
        (
            &[
                "--set",
                "init.adminUrl=postgres://a@db/b,init.existingSecret=c",
            ],
            "not both",
        ),
        (
            &["--set-literal", "config=relay.lease = \"20s\""],
            "[relay]",
        ),
        (
            &[
                "--set",
                "autoscaling.enabled=true,autoscaling.minReplicas=5",
            ],
            "minReplicas is above maxReplicas",
        ),
        (&["--kube-version", "1.26.0"], "kubeVersion"),
    ] {
        let said = helm_template(values).expect_status(1).stderr;
        assert!(said.contains(named), "{values:?}: {said}");
    }
}

#[test]
fn a_release_whose_name_no_service_can_have_is_refused() {
    for name in ["shop.v1", "1shop"] {
        let said = helm_template_as(name, &[]).expect_status(1).stderr;
        assert!(said.contains("set fullnameOverride"), "{said}");
        helm_template_as(name, &["--set", "fullnameOverride=shop"]).expect_status(0);
    }
}
