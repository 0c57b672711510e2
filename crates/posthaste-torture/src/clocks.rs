//! Wall clocks that are wrong by ten minutes, in steps and drifting: relays go by the database's
//! clock and by the time since the machine's start.

use std::{fs, path::PathBuf};

use super::fleet::Fleet;

/// Ahead, behind, and away at another speed.
const WRONG: [&str; 5] = ["+600", "-600", "+0 x2", "-600 x0.5", "+600 x1.5"];

/// The clocks of a fleet.
pub struct Clocks {
    folder: tempfile::TempDir,
    relays: usize,
    steps: usize,
}

impl Clocks {
    /// Every relay that starts from now on has one of its own.
    pub fn for_all_of(fleet: &mut Fleet) -> Self {
        let clocks = Self {
            folder: tempfile::tempdir().unwrap(),
            relays: fleet.size(),
            steps: 0,
        };
        for who in 0..clocks.relays {
            fs::write(clocks.file(who), WRONG[who % WRONG.len()]).unwrap();
            let file = clocks.file(who);
            fleet.set_environment(who, "LD_PRELOAD", library().to_str().unwrap());
            fleet.set_environment(who, "FAKETIME_TIMESTAMP_FILE", file.to_str().unwrap());
            fleet.set_environment(who, "FAKETIME_NO_CACHE", "1");
            // It is the wall's clock alone that is wrong.
            fleet.set_environment(who, "DONT_FAKE_MONOTONIC", "1");
        }
        clocks
    }

    /// All of them jump.
    pub fn step(&mut self) {
        self.steps += 1;
        for who in 0..self.relays {
            // Replaced as a whole: whoever reads it while it is empty would have the right time.
            let new = self.folder.path().join("new");
            fs::write(&new, WRONG[(who + self.steps) % WRONG.len()]).unwrap();
            fs::rename(&new, self.file(who)).unwrap();
        }
    }

    fn file(&self, who: usize) -> PathBuf {
        self.folder.path().join(format!("clock-{who}"))
    }
}

/// From its next start on this relay's wall clock is an hour ahead.
pub fn set_ahead(fleet: &mut Fleet, who: usize) {
    fleet.set_environment(who, "LD_PRELOAD", library().to_str().unwrap());
    fleet.set_environment(who, "FAKETIME", "+3600");
    fleet.set_environment(who, "DONT_FAKE_MONOTONIC", "1");
}

/// The library that Debian's package `faketime` puts between a program and its clock.
fn library() -> PathBuf {
    let folders = ["x86_64-linux-gnu", "aarch64-linux-gnu"];
    let mut files = folders
        .iter()
        .map(|folder| PathBuf::from(format!("/usr/lib/{folder}/faketime/libfaketimeMT.so.1")));
    files.find(|file| file.exists()).expect(
        "faketime is not installed; ./test installs it, or by hand: apt-get install faketime",
    )
}
