//! The folder that outlives test runs: downloaded servers, cluster templates, port locks.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// The cache folder; `./test` computes the same one.
pub(crate) fn cache_dir() -> PathBuf {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    set("POSTHASTE_TEST_CACHE").map_or_else(
        || {
            set("XDG_CACHE_HOME")
                .map(PathBuf::from)
                .or_else(|| set("HOME").map(|home| PathBuf::from(home).join(".cache")))
                .expect("set HOME, XDG_CACHE_HOME or POSTHASTE_TEST_CACHE: tests need a cache")
                .join("posthaste")
        },
        PathBuf::from,
    )
}

/// Returns `cache_dir()/name`, made by `make` (which gets the path to fill) if it does not exist.
///
/// Several test processes may ask at once: one makes it, under a lock, and it appears under its
/// name only when complete.
///
/// # Panics
///
/// When the cache cannot be written.
pub fn cached_dir(name: &str, make: impl FnOnce(&Path)) -> PathBuf {
    let dir = cache_dir();
    let wanted = dir.join(name);
    if wanted.exists() {
        return wanted;
    }
    fs::create_dir_all(&dir).unwrap_or_else(|e| panic!("cannot create {}: {e}", dir.display()));
    let lock = File::create(dir.join(format!("{name}.lock"))).expect("create a lock file");
    lock.lock().expect("lock a cache entry");
    if !wanted.exists() {
        let unfinished = dir.join(format!("{name}.unfinished"));
        if unfinished.exists() {
            fs::remove_dir_all(&unfinished).expect("remove what a killed run left");
        }
        make(&unfinished);
        fs::rename(&unfinished, &wanted).expect("publish a finished cache entry");
    }
    wanted
}
