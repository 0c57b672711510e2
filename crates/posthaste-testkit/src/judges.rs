//! Programs that judge what we write, each the tool of its field: rules and metrics of Prometheus,
//! charts, manifests. `./test` brings them.

use std::{
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
};

use serde_json::Value;

use crate::cache::cached_dir;

/// The versions of Kubernetes between which manifests have to be good: the oldest that the chart
/// allows, and the newest whose schemas there are.
const KUBERNETES_VERSIONS: [&str; 2] = ["1.27.0", "1.37.0"];

/// Prometheus' own judge, fed with a text. It must have nothing to say.
///
/// # Panics
///
/// When it has, or is missing.
pub fn promtool(check: &[&str], text: &str) {
    let missing = "promtool is missing; `./test --install` brings it";
    let in_path = Command::new("promtool").arg("--version").output().is_ok();
    let program = match in_path {
        true => "promtool".into(),
        false => cached_dir("promtool", |_| panic!("{missing}")),
    };
    let (stdout, stderr, is_good) = fed(Command::new(program).args(check), text);
    assert!(is_good && stderr.is_empty(), "{stderr}{stdout}\n{text}");
}

/// `helm`, `kubeconform`, `kustomize`, or `compose-spec`, the parser of Compose's files.
///
/// # Panics
///
/// When it is missing.
#[must_use]
pub fn kubernetes_tool(name: &str) -> Command {
    let program = kubernetes_tools().join("bin").join(name);
    assert!(
        program.exists(),
        "there is no {name}; `./test --install` brings it"
    );
    Command::new(program)
}

/// Kubernetes' own schemas for manifests, of several of its versions: every object must have one
/// and no field that the schema does not know. Answers how many objects there are.
///
/// # Panics
///
/// When an object is not good.
pub fn kubeconform(manifests: &str) -> usize {
    let schemas = kubernetes_tools().join("schemas");
    let in_schemas = |path: &str| Path::join(&schemas, path).display().to_string();
    let mut objects = 0;
    for version in KUBERNETES_VERSIONS {
        let mut command = kubernetes_tool("kubeconform");
        command.args(["-strict", "-output", "json", "-summary", "-verbose"]);
        command.args(["-schema-location"]);
        command.arg(in_schemas(&format!(
            "v{version}/{{{{.ResourceKind}}}}{{{{.KindSuffix}}}}.json"
        )));
        command.args(["-schema-location"]);
        command.arg(in_schemas(
            "custom/{{.ResourceKind}}_{{.ResourceAPIVersion}}.json",
        ));
        let (stdout, stderr, is_good) = fed(command.arg("-"), manifests);
        assert!(
            is_good,
            "Kubernetes {version}: {stderr}{stdout}\n{manifests}"
        );
        let judged: Value = serde_json::from_str(&stdout).expect("kubeconform's answer");
        let count = |of: &str| judged["summary"][of].as_u64();
        assert_eq!(count("skipped"), Some(0), "{stdout}");
        objects = judged["resources"].as_array().expect("objects").len();
        let valid = count("valid").and_then(|valid| usize::try_from(valid).ok());
        assert_eq!(valid, Some(objects), "{stdout}");
    }
    objects
}

fn kubernetes_tools() -> PathBuf {
    cached_dir("kubernetes-tools", |_| {
        panic!("helm, kubeconform and kustomize are missing; `./test --install` brings them")
    })
}

/// Runs a command with this text as its input: both outputs, and whether it ended well.
fn fed(command: &mut Command, text: &str) -> (String, String, bool) {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|e| panic!("cannot run {command:?}: {e}"));
    let mut input = child.stdin.take().expect("a pipe");
    // Beside the reading, as the program may answer before it has read everything.
    let text = text.to_owned();
    let feeding = thread::spawn(move || input.write_all(text.as_bytes()));
    let done = child.wait_with_output().expect("its output");
    let fed = feeding.join().expect("the feeding thread");
    assert!(
        fed.is_ok() || !done.status.success(),
        "{command:?} did not read its input: {fed:?}"
    );
    let [stdout, stderr] =
        [done.stdout, done.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    (stdout, stderr, done.status.success())
}
