//! The meaning of the file system's errors for the destination, and what mends them.

use std::{io, path::Path};

use posthaste_engine::{Cause, SinkError, Unavailability};
use rustix::io::Errno;

/// How messages name the destination.
pub(super) fn target(path: &Path) -> String {
    format!("file {}", path.display())
}

/// A failure to write: the destination's fault, never an event's.
pub(super) fn unavailable(path: &Path, doing: &str, error: &io::Error) -> Unavailability {
    let (cause, fix) = classify(error);
    Unavailability::new(
        cause,
        format!("{}: {}", target(path), sentence(doing, error, fix)),
    )
}

/// A failure to open or to check.
pub(super) fn sink_error(path: &Path, doing: &str, error: &io::Error) -> SinkError {
    let (cause, fix) = classify(error);
    SinkError::new(cause, target(path), sentence(doing, error, fix))
}

fn sentence(doing: &str, error: &io::Error, fix: &str) -> String {
    if fix.is_empty() {
        format!("{doing}: {error}")
    } else {
        format!("{doing}: {error}; {fix}")
    }
}

/// Unknown errors are the destination's: lost time can be repaired, a dropped event cannot.
fn classify(error: &io::Error) -> (Cause, &'static str) {
    match Errno::from_io_error(error) {
        Some(Errno::NOSPC) => (Cause::Connection, "free space on its device"),
        Some(Errno::DQUOT) => (Cause::Connection, "free space or raise the user's quota"),
        Some(Errno::MFILE | Errno::NFILE) => (Cause::Connection, "raise the limit of open files"),
        Some(Errno::FBIG) => (
            Cause::Misconfigured,
            "move the file away, or raise the size limit of files (ulimit -f)",
        ),
        Some(Errno::ACCESS | Errno::PERM) => (
            Cause::Denied,
            "let the relay's user read and write the file and its directory",
        ),
        Some(Errno::ROFS) => (Cause::Denied, "mount the file system for writing"),
        Some(Errno::INVAL) => (Cause::Misconfigured, "name a file on a device"),
        Some(Errno::NOENT) => (Cause::Misconfigured, "create its directory"),
        Some(Errno::NOTDIR | Errno::ISDIR | Errno::LOOP | Errno::NAMETOOLONG) => {
            (Cause::Misconfigured, "correct the path in the address")
        }
        _ => (Cause::Connection, ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_errno_has_its_cause() {
        for (errno, cause, fix) in [
            (Errno::NOSPC, Cause::Connection, "free space"),
            (Errno::DQUOT, Cause::Connection, "quota"),
            (Errno::MFILE, Cause::Connection, "open files"),
            (Errno::NFILE, Cause::Connection, "open files"),
            (Errno::IO, Cause::Connection, "/spool/x"),
            (Errno::STALE, Cause::Connection, "/spool/x"),
            (Errno::FBIG, Cause::Misconfigured, "ulimit -f"),
            (Errno::INVAL, Cause::Misconfigured, "on a device"),
            (Errno::NOENT, Cause::Misconfigured, "create its directory"),
            (Errno::NOTDIR, Cause::Misconfigured, "correct the path"),
            (Errno::ISDIR, Cause::Misconfigured, "correct the path"),
            (Errno::LOOP, Cause::Misconfigured, "correct the path"),
            (Errno::NAMETOOLONG, Cause::Misconfigured, "correct the path"),
            (Errno::ACCESS, Cause::Denied, "read and write"),
            (Errno::PERM, Cause::Denied, "read and write"),
            (Errno::ROFS, Cause::Denied, "mount"),
        ] {
            let error = io::Error::from(errno);
            let fault = unavailable(Path::new("/spool/x"), "writing", &error);
            assert_eq!(fault.cause, cause, "{errno:?}");
            assert!(fault.reason.contains(fix), "{}", fault.reason);
            let opening = sink_error(Path::new("/spool/x"), "opening", &error);
            assert_eq!(opening.cause(), cause, "{errno:?}");
            assert!(opening.to_string().contains(fix), "{opening}");
        }
    }
}
