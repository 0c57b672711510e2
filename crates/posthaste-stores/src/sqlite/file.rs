//! The file that a path leads to.

use std::{fs, io, os::unix::fs::MetadataExt, path::Path};

use posthaste_engine::StoreError;

/// The file that a path led to. A file that is replaced while it is open goes on living without a
/// name, and takes writes that nobody will ever read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    fn of(path: &Path) -> io::Result<Self> {
        let metadata = fs::metadata(path)?;
        Ok(Self {
            device: metadata.dev(),
            inode: metadata.ino(),
        })
    }
}

/// The file's identity, or why there is none.
pub(super) fn identify(operation: &'static str, path: &Path) -> Result<FileId, StoreError> {
    FileId::of(path).map_err(|error| StoreError::Unavailable {
        operation,
        reason: format!("{}: {error}", path.display()),
        source: Some(Box::new(error)),
    })
}

/// The write-ahead log and its index lie beside the file, under its name: a process that opens the
/// file by another name has others, and both damage it.
pub(super) fn refuse_two_names(operation: &'static str, path: &Path) -> Result<(), StoreError> {
    // Opening tells of a file that is not there or out of reach.
    let links = fs::metadata(path).map_or(0, |metadata| metadata.nlink());
    let reason = if links > 1 {
        "it has a second name (a hard link), and SQLite keeps a log of its own under each, which \
         damages the file: remove the other name, or let all use a copy"
    } else if is_mounted(path) {
        "it is mounted as a single file, and SQLite's log beside it is another one than outside, \
         which damages the file: mount its directory instead"
    } else {
        return Ok(());
    };
    Err(StoreError::Misconfigured {
        operation,
        reason: format!("{}: {reason}", path.display()),
    })
}

#[cfg(target_os = "linux")]
fn is_mounted(path: &Path) -> bool {
    use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags, statx};

    statx(CWD, path, AtFlags::empty(), StatxFlags::empty())
        .is_ok_and(|found| found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}

#[cfg(not(target_os = "linux"))]
fn is_mounted(_path: &Path) -> bool {
    false
}
