//! `pg_upgrade` of the packaged version, from an older one.

use std::{
    fs::{self, Permissions},
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
};

use crate::servers::run;

use super::{
    cluster::Cluster,
    install::{self, Programs, account},
};

/// The archives of older versions hold no `pg_resetwal`. `pg_upgrade` asks it, without letting it
/// change anything, for what `pg_controldata` says too, and for a segment of the write-ahead log
/// that is to come.
const RESETWAL: &str = r#"#!/bin/sh
case "$1" in -V|--version) echo "pg_resetwal (PostgreSQL)"; exit;; esac
for last; do :; done
CONTROLDATA "$last" && echo "First log segment after reset:        0000000100000000000000FF"
"#;

/// Fills `data` with what becomes of a cluster that was stopped in order.
pub(super) fn run(old: &Cluster, data: &Path) {
    let folder = data.parent().expect("a folder of the server");
    let new = Programs::find(install::PACKAGED, folder);
    new.new_cluster(data, folder);
    let bin = folder.join("old-programs");
    fs::create_dir(&bin).expect("make a folder");
    let controldata = new.bin.join("pg_controldata");
    for program in ["postgres", "pg_ctl"] {
        symlink(old.programs.bin.join(program), bin.join(program)).expect("link a program");
    }
    symlink(&controldata, bin.join("pg_controldata")).expect("link a program");
    let resetwal = bin.join("pg_resetwal");
    let script = RESETWAL.replace("CONTROLDATA", &controldata.display().to_string());
    fs::write(&resetwal, script).expect("write a program");
    fs::set_permissions(&resetwal, Permissions::from_mode(0o755)).expect("chmod");
    account().take_over(&bin);
    let port = old.port().to_string();
    let mut upgrade = new.command("pg_upgrade");
    upgrade
        .current_dir(folder)
        .args(["--username=postgres", "-p", &port, "-P", &port]);
    upgrade.arg("-b").arg(&bin).arg("-B").arg(&new.bin);
    upgrade.arg("-d").arg(old.data()).arg("-D").arg(data);
    run::run(upgrade.arg("-s").arg(folder));
}
