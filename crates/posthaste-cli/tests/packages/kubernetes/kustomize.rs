//! The manifests for Kustomize, which are what the chart renders by default.

use std::time::Duration;

use posthaste_testkit::{
    judges::{kubeconform, kubernetes_tool},
    process::run,
};
use serde_json::Value;

use super::{
    chart::Release,
    files::{assert_made, yaml},
};
use crate::made::root;

const FOLDER: &str = "packaging/kustomize";
const LIMIT: Duration = Duration::from_secs(60);

/// The chart's objects without the file, which Kustomize names by its contents, and without the
/// marks of Helm.
fn manifests(release: &Release) -> String {
    let documents = release.text.split("---\n").filter(|document| {
        !document.trim().is_empty() && !document.contains("\nkind: ConfigMap\n")
    });
    let mut text = String::from("# Rendered from packaging/helm/posthaste; a test compares.\n");
    for document in documents {
        text.push_str("---\n");
        let lines = document.lines().filter(|line| {
            let line = line.trim_start();
            let marks = [
                "# Source: ",
                "helm.sh/chart: ",
                "app.kubernetes.io/managed-by: ",
                "checksum/config: ",
                "namespace: ",
            ];
            // By default a pod's only annotation is the file's checksum.
            line != "annotations:" && !marks.iter().any(|mark| line.starts_with(mark))
        });
        lines.for_each(|line| text.extend([line, "\n"]));
    }
    text
}

fn build(folder: &str) -> String {
    let mut kustomize = kubernetes_tool("kustomize");
    kustomize.args(["build", &format!("{FOLDER}/{folder}")]);
    run(kustomize.current_dir(root()), LIMIT)
        .expect_status(0)
        .stdout
}

fn the<'a>(objects: &'a [Value], kind: &str) -> &'a Value {
    let mut objects = objects.iter().filter(|object| object["kind"] == kind);
    let found = objects.next().unwrap_or_else(|| panic!("no {kind}"));
    assert!(objects.next().is_none(), "several of {kind}");
    found
}

#[test]
fn the_manifests_are_what_the_chart_renders() {
    let release = Release::by_default();
    assert_made(
        &format!("{FOLDER}/base/posthaste.yaml"),
        &manifests(&release),
    );
    let file = release.configuration();
    assert_made(&format!("{FOLDER}/base/posthaste.toml"), &file);
    // Nothing but those marks is left out.
    let mut base = yaml(&build("base"));
    let pod = |objects: &[Value]| the(objects, "Deployment")["spec"]["template"]["spec"].clone();
    let volume = pod(&base)["volumes"][0]["configMap"]["name"].clone();
    assert_eq!(volume, the(&base, "ConfigMap")["metadata"]["name"]);
    let deployment = base.iter_mut().find(|o| o["kind"] == "Deployment").unwrap();
    deployment["spec"]["template"]["spec"]["volumes"][0]["configMap"]["name"] = "posthaste".into();
    assert_eq!(pod(&base), *release.pod());
}

#[test]
fn kubernetes_knows_every_field_of_what_kustomize_builds() {
    let both = [build("base"), build("example")].join("---\n");
    assert!(kubeconform(&both) >= 6 + 8);
}

/// A changed file or secret has another name, so that the relays are replaced.
#[test]
fn the_example_gives_its_own_file_and_secret() {
    let objects = yaml(&build("example"));
    let deployment = the(&objects, "Deployment");
    let pod = &deployment["spec"]["template"]["spec"];
    let secret = &the(&objects, "Secret")["metadata"]["name"];
    assert_eq!(
        pod["containers"][0]["envFrom"][0]["secretRef"]["name"],
        *secret
    );
    assert!(secret.as_str().unwrap().starts_with("posthaste-"));
    let map = the(&objects, "ConfigMap");
    assert_eq!(
        pod["volumes"][0]["configMap"]["name"],
        map["metadata"]["name"]
    );
    let file = map["data"]["posthaste.toml"].as_str().unwrap();
    let file: toml::Table = file.parse().unwrap();
    assert_eq!(file["destinations"].as_table().unwrap().len(), 2);
    assert_eq!(file["relay"]["http_allow_remote"].as_bool(), Some(true));
    for object in &objects {
        if object["kind"] != "Namespace" {
            assert_eq!(object["metadata"]["namespace"], "shop", "{object}");
        }
    }
}
