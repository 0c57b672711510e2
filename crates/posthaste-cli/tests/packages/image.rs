//! The image, unpacked by umoci as a container's runtime does it, and entered.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use posthaste_testkit::process::{Finished, run};
use serde_json::Value;
use tempfile::TempDir;

use crate::{
    installed::Installed,
    made::{LIMIT, VERSION, done, made, program, root},
};

fn layout() -> PathBuf {
    made().artefact(
        "posthaste-",
        if cfg!(target_arch = "x86_64") {
            "oci-amd64"
        } else {
            "oci-arm64"
        },
    )
}

/// The bundle: the folder `rootfs`, and `config.json` for the runtime.
fn unpack(folder: &Path) -> PathBuf {
    let bundle = folder.join("bundle");
    let mut umoci = program("umoci", "umoci");
    umoci.args(["unpack", "--rootless", "--image"]);
    umoci.arg(format!("{}:{VERSION}", layout().display()));
    done(umoci.arg(&bundle));
    bundle
}

pub(crate) fn installed(folder: TempDir) -> Installed {
    let files = unpack(folder.path()).join("rootfs");
    let files = files.to_str().unwrap().to_owned();
    let chroot = "/usr/sbin/chroot";
    // Without the rights of root it is entered as the root of a namespace.
    let start: &[&str] = if rustix::process::geteuid().is_root() {
        &[
            chroot,
            "--userspec=65532:65532",
            &files,
            "/usr/bin/posthaste",
        ]
    } else {
        &[
            "/usr/bin/unshare",
            "--map-root-user",
            chroot,
            &files,
            "/usr/bin/posthaste",
        ]
    };
    Installed::new(folder, start, "/usr/bin")
}

#[test]
fn a_runtime_learns_how_to_start_and_ask_it() {
    let mut skopeo = program("skopeo", "skopeo");
    skopeo.args(["inspect", "--config"]);
    let inspected = done(skopeo.arg(format!("oci:{}:{VERSION}", layout().display())));
    let config: Value = serde_json::from_str(&inspected.stdout).unwrap();
    let config = &config["config"];
    assert_eq!(config["User"], "65532:65532");
    assert_eq!(
        config["Entrypoint"],
        serde_json::json!(["/usr/bin/posthaste"])
    );
    let labels = config["Labels"].as_object().unwrap();
    assert_eq!(labels["org.opencontainers.image.version"], VERSION);
    assert_eq!(
        labels["org.opencontainers.image.licenses"],
        "MIT OR Apache-2.0"
    );
    // skopeo leaves out Docker's addition.
    let written = blobs_that_contain("Healthcheck");
    let health = &written[0]["config"]["Healthcheck"]["Test"];
    assert_eq!(
        health,
        &serde_json::json!(["CMD", "/usr/bin/posthaste", "health"])
    );
}

fn blobs_that_contain(word: &str) -> Vec<Value> {
    let blobs = fs::read_dir(layout().join("blobs/sha256")).unwrap();
    let texts = blobs.filter_map(|blob| fs::read_to_string(blob.unwrap().path()).ok());
    let found: Vec<Value> = texts
        .filter(|text| text.contains(word))
        .map(|text| serde_json::from_str(&text).unwrap())
        .collect();
    assert!(!found.is_empty(), "no blob has {word}");
    found
}

#[test]
fn there_is_no_other_program_in_it() {
    let folder = tempfile::tempdir().unwrap();
    let files = unpack(folder.path()).join("rootfs");
    let mut find = Command::new("find");
    let found = done(find.arg(&files).args(["-type", "f", "-perm", "/111"]));
    let programs = found.stdout.lines().filter(|name| !name.contains(".so"));
    let program = files.join("usr/bin/posthaste");
    assert_eq!(programs.collect::<Vec<_>>(), [program.to_str().unwrap()]);
}

fn join(folders: &[&Path], out: &Path) -> Finished {
    let mut python = program("python3", "python3");
    python.arg(root().join("packaging/artefacts/join.py"));
    run(python.arg("--out").arg(out).args(folders), LIMIT)
}

/// As the release workflow joins what two machines have made.
#[test]
fn images_of_two_machines_become_one() {
    let folder = tempfile::tempdir().unwrap();
    let other = folder.path().join("other");
    let image = layout();
    let image = image.file_name().unwrap();
    let mut copy = Command::new("cp");
    fs::create_dir(&other).unwrap();
    done(copy.arg("-r").arg(layout()).arg(&other));
    let same = join(&[made().folder(), &other], &folder.path().join("same"));
    assert_eq!(same.status.code(), Some(1), "{same}");
    assert!(same.stderr.contains("the same machine"), "{same}");

    // The image of a machine that nothing here can build for.
    for blob in fs::read_dir(other.join(image).join("blobs/sha256")).unwrap() {
        let blob = blob.unwrap().path();
        if let Ok(index) = fs::read_to_string(&blob)
            && index.contains("\"platform\"")
        {
            let machine = if cfg!(target_arch = "x86_64") {
                "amd64"
            } else {
                "arm64"
            };
            fs::write(&blob, index.replace(machine, "s390x")).unwrap();
        }
    }
    let joined = folder.path().join("joined");
    join(&[made().folder(), &other], &joined).expect_status(0);
    let together = folder.path().join("together");
    let archive = joined.join(format!("posthaste-{VERSION}-oci.tar"));
    fs::create_dir(&together).unwrap();
    done(
        Command::new("tar")
            .arg("-xf")
            .arg(archive)
            .arg("-C")
            .arg(&together),
    );
    let mut skopeo = program("skopeo", "skopeo");
    skopeo.args(["inspect", "--raw"]);
    let index = done(skopeo.arg(format!("oci:{}:{VERSION}", together.display())));
    let index: Value = serde_json::from_str(&index.stdout).unwrap();
    let machines = index["manifests"].as_array().unwrap().iter();
    let machines = machines.map(|manifest| manifest["platform"]["architecture"].as_str().unwrap());
    let machines: Vec<_> = machines.collect();
    assert_eq!(machines.len(), 2, "{index}");
    assert!(machines.contains(&"s390x"), "{index}");
}
