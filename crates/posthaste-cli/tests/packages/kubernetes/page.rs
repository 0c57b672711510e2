//! The commands of the page on Kubernetes, as far as they need no cluster: what would be installed
//! is rendered and judged.

use std::{fs, os::unix::fs::symlink, path::Path, process::Command, time::Duration};

use posthaste_testkit::{
    judges::{kubeconform, kubernetes_tool},
    process::run,
};

use super::{chart::ON_KUBERNETES, files::blocks};
use crate::made::root;

const PAGE: &str = "docs/kubernetes.md";
const LIMIT: Duration = Duration::from_secs(60);

/// Renders where the page installs.
fn offline(command: &str) -> String {
    let template = format!("helm template {} ", ON_KUBERNETES.join(" "));
    let rendered = command
        .replace("helm upgrade --install ", &template)
        .replace("helm upgrade ", &template)
        .replace("helm install ", &template);
    // The values that a release has already: here is none.
    rendered.replace(" --reuse-values", "")
}

#[test]
fn what_the_page_on_kubernetes_installs_is_good() {
    let folder = tempfile::tempdir().unwrap();
    symlink(root().join("packaging"), folder.path().join("packaging")).unwrap();
    for values in blocks(PAGE, "yaml") {
        let name = values
            .lines()
            .next()
            .and_then(|line| line.strip_prefix("# "));
        let name = name.expect("the file's name in its first line");
        fs::write(folder.path().join(name), &values).unwrap();
    }
    let tools = kubernetes_tool("helm");
    let tools = Path::new(tools.get_program()).parent().unwrap();
    let path = format!("{}:{}", tools.display(), std::env::var("PATH").unwrap());
    let (mut rendered, mut parsed, mut installed) = (0, 0, String::new());
    for block in blocks(PAGE, "sh") {
        for command in block.replace("\\\n", "").lines() {
            let runs = ["helm ", "kustomize "]
                .iter()
                .any(|tool| command.starts_with(tool));
            let mut bash = Command::new("bash");
            bash.current_dir(folder.path()).env("PATH", &path);
            if runs {
                bash.args(["-euc", &offline(command)]);
                let manifests = run(&mut bash, LIMIT).expect_status(0).stdout;
                assert!(manifests.contains("\nkind: Deployment\n"), "{command}");
                let manifests = manifests.trim_start_matches("---\n");
                installed.extend(["---\n", manifests]);
                rendered += 1;
            } else {
                assert!(command.starts_with("kubectl "), "{command}");
                run(bash.args(["-nc", command]), LIMIT).expect_status(0);
                parsed += 1;
            }
        }
    }
    assert!(
        rendered >= 7 && parsed >= 5,
        "{rendered} and {parsed} commands"
    );
    kubeconform(&installed);
}
