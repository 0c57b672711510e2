//! The open, locked file of a lane.

use std::{
    fs::{self, File, OpenOptions, Permissions, TryLockError},
    io::{self, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt},
    path::Path,
    path::PathBuf,
};

use posthaste_engine::{Cause, CheckReport, Fact, SinkError, Unavailability};
use rustix::{
    fs::{Access, AtFlags, CWD, accessat, major, minor, statvfs},
    io::Errno,
};

use super::{
    fault,
    tail::{self, Tail},
};
use crate::writer::Target;

/// How often a file that is rotated while we lock it, or write, is tried again.
const ATTEMPTS_MAX: usize = 8;
const REPLACED: &str =
    "it is replaced again and again, faster than it can be written; rotate it less often";

/// Of a file that is created: events are not for everybody on the machine.
pub(super) const MODE_DEFAULT: u32 = 0o640;

/// A file that is ours to append to, for as long as this lives.
#[derive(Debug)]
pub(super) struct Appender {
    path: PathBuf,
    file: File,
    /// As [`super::FileSink`]'s.
    mode: Option<u32>,
}

/// A program that this process is just starting holds the open file too until it runs, and the lock
/// with it: closing it here alone would leave it locked for so long.
impl Drop for Appender {
    fn drop(&mut self) {
        if let Err(error) = self.file.unlock() {
            let path = self.path.display();
            tracing::debug!("{path} is unlocked by being closed: {error}");
        }
    }
}

impl Appender {
    /// Opens or creates the file, takes its lock, and repairs a torn last line.
    pub(super) fn open(path: &Path, mode: Option<u32>) -> Result<Self, SinkError> {
        let opening = |error: io::Error| fault::sink_error(path, "opening", &error);
        for _ in 0..ATTEMPTS_MAX {
            refuse_special_file(path)?;
            let file = open_or_create(path, mode).map_err(opening)?;
            lock(path, &file)?;
            let appender = Self {
                path: path.to_owned(),
                file,
                mode,
            };
            // Between opening and locking, the file may have been moved away.
            if appender.is_current().map_err(opening)? {
                appender.repair()?;
                // Refuses a file that cannot be synced before a line is written.
                let syncing = |error| fault::sink_error(path, "syncing to the device", &error);
                appender.file.sync_data().map_err(syncing)?;
                sync_directory(path)?;
                return Ok(appender);
            }
        }
        Err(SinkError::Unavailable {
            target: fault::target(path),
            reason: REPLACED.to_owned(),
        })
    }

    /// Whether the path still names the open file.
    fn is_current(&self) -> io::Result<bool> {
        let open = self.file.metadata()?;
        match fs::metadata(&self.path) {
            Ok(named) => Ok((named.dev(), named.ino()) == (open.dev(), open.ino())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn repair(&self) -> Result<(), SinkError> {
        let repairing = |error| fault::sink_error(&self.path, "repairing its last line", &error);
        match tail::inspect(&self.file).map_err(repairing)? {
            Tail::Whole => Ok(()),
            Tail::Foreign => Err(foreign(&self.path)),
            Tail::Unended { end } => {
                self.file.set_len(end).map_err(repairing)?;
                (&self.file).write_all(b"\n").map_err(repairing)
            }
            Tail::Torn { start } => {
                let end = self.file.metadata().map_err(repairing)?.len();
                self.file.set_len(start).map_err(repairing)?;
                tracing::warn!(
                    file = %self.path.display(),
                    bytes = end - start,
                    "cut an unfinished last line, which was never accepted"
                );
                Ok(())
            }
        }
    }

    /// Goes on in the file that the path names now, when ours was rotated or removed.
    fn follow_path(&mut self) -> Result<(), Unavailability> {
        if self.is_still_current()? {
            return Ok(());
        }
        *self = Self::open(&self.path, self.mode)
            .map_err(|error| Unavailability::new(error.cause(), error.to_string()))?;
        tracing::info!(
            file = %self.path.display(),
            "the file was moved or removed: writing into a new one"
        );
        Ok(())
    }

    fn is_still_current(&self) -> Result<bool, Unavailability> {
        self.is_current()
            .map_err(|error| fault::unavailable(&self.path, "looking it up", &error))
    }

    fn write(&self, lines: &[u8]) -> Result<(), Unavailability> {
        let failed = |doing, error: &io::Error| fault::unavailable(&self.path, doing, error);
        // Asked anew each time: somebody may have truncated the file under us.
        let accepted = self
            .file
            .metadata()
            .map_err(|error| failed("looking up its length", &error))?
            .len();
        if let Err(error) = (&self.file).write_all(lines) {
            self.cut_back(accepted);
            return Err(failed("writing", &error));
        }
        if let Err(error) = self.file.sync_data() {
            self.cut_back(accepted);
            return Err(Unavailability {
                cause: Cause::Unknown,
                ..failed("syncing to the device", &error)
            });
        }
        Ok(())
    }

    /// Removes the lines of a group that does not count. The state that a failed sync left on the
    /// device is unknown, and must not stand between accepted lines.
    fn cut_back(&self, accepted: u64) {
        if let Err(error) = self.file.set_len(accepted) {
            tracing::warn!(
                file = %self.path.display(),
                %error,
                "could not cut a group that failed; the next lane repairs the last line"
            );
        }
    }
}

impl Target for Appender {
    fn append(&mut self, lines: &[u8]) -> Result<(), Unavailability> {
        for _ in 0..ATTEMPTS_MAX {
            self.follow_path()?;
            self.write(lines)?;
            // The lines count only in the file that the path names once they are synced. Another
            // process may have moved a file away, read it before they came, and remove it.
            if self.is_still_current()? {
                return Ok(());
            }
        }
        Err(Unavailability::new(
            Cause::Connection,
            format!("{}: {REPLACED}", fault::target(&self.path)),
        ))
    }
}

/// A file that is there keeps its mode.
fn open_or_create(path: &Path, mode: Option<u32>) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).append(true);
    match options.open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        opened => return opened,
    }
    options.mode(mode.unwrap_or(MODE_DEFAULT));
    match options.clone().create_new(true).open(path) {
        // It came meanwhile, or it is a symbolic link to a file that is not there.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            options.create(true).open(path)
        }
        created => {
            let file = created?;
            if let Some(mode) = mode {
                // The mode of the address counts, whatever the umask.
                file.set_permissions(Permissions::from_mode(mode))?;
            }
            Ok(file)
        }
    }
}

/// Whether [`Appender::open`] would succeed, as far as this shows without touching anything.
///
/// The lock is not tried: holding it for an instant could turn away the relay that is starting.
pub(super) fn check(path: &Path) -> Result<CheckReport, SinkError> {
    refuse_special_file(path)?;
    let checking = |error: io::Error| fault::sink_error(path, "checking", &error);
    let size = match OpenOptions::new().read(true).append(true).open(path) {
        Ok(file) => match tail::inspect(&file).map_err(checking)? {
            Tail::Whole | Tail::Unended { .. } | Tail::Torn { .. } => {
                file.metadata().map_err(checking)?.len().to_string()
            }
            Tail::Foreign => return Err(foreign(path)),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let rights = Access::WRITE_OK | Access::EXEC_OK;
            accessat(CWD, directory(path), rights, AtFlags::EACCESS)
                .map_err(|errno| checking(errno.into()))?;
            "not there yet".to_owned()
        }
        Err(error) => return Err(checking(error)),
    };
    let free = statvfs(directory(path)).ok();
    let free = free.map(|device| device.f_bavail.saturating_mul(device.f_frsize));
    let mut report = CheckReport::default();
    let facts = vec![Fact::seen("bytes", size), Fact::new("free bytes", free)];
    report.part("file", path.display().to_string(), facts);
    Ok(report)
}

fn foreign(path: &Path) -> SinkError {
    SinkError::Misconfigured {
        target: fault::target(path),
        reason: "its last line does not end and was not written by Posthaste; end the line, or \
                 name another file"
            .to_owned(),
    }
}

/// A device or a pipe cannot be synced, cut back or repaired.
fn refuse_special_file(path: &Path) -> Result<(), SinkError> {
    match fs::metadata(path) {
        Ok(found) if !found.is_file() => Err(SinkError::Misconfigured {
            target: fault::target(path),
            reason: "it is not a regular file; name one, or use `stdout:` for a pipe".to_owned(),
        }),
        // Absent, or out of reach: opening it says so.
        Ok(_) | Err(_) => Ok(()),
    }
}

fn directory(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new("/"))
}

/// A new file is not durable before its directory entry is. Done at every opening: the process that
/// created the file may have died before it came to this.
fn sync_directory(path: &Path) -> Result<(), SinkError> {
    let synced = File::open(directory(path)).and_then(|directory| directory.sync_all());
    match synced {
        // Some network file systems sync no directories, and keep their entries by themselves.
        Err(error) if Errno::from_io_error(&error) == Some(Errno::INVAL) => Ok(()),
        Err(error) => Err(fault::sink_error(path, "syncing its directory", &error)),
        Ok(()) => Ok(()),
    }
}

fn lock(path: &Path, file: &File) -> Result<(), SinkError> {
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::Error(error)) => Err(fault::sink_error(path, "locking", &error)),
        Err(TryLockError::WouldBlock) => Err(SinkError::Unavailable {
            target: fault::target(path),
            reason: held_by(file),
        }),
    }
}

fn held_by(file: &File) -> String {
    match lock_holder(file) {
        Some(pid) if pid == std::process::id() => {
            "this process itself still writes it, on an earlier lane or for another destination; \
             give each destination a file of its own"
                .to_owned()
        }
        Some(pid) => {
            let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            format!(
                "process {pid} ({}) writes it and holds its lock; stop that process, or name \
                 another file",
                name.trim_end()
            )
        }
        None => "another process writes it and holds its lock; stop that process, or name another \
                 file"
            .to_owned(),
    }
}

/// The process that holds the lock, where the system tells (Linux).
fn lock_holder(file: &File) -> Option<u32> {
    let found = file.metadata().ok()?;
    let (major, minor) = (major(found.dev()), minor(found.dev()));
    let inode = format!("{major:02x}:{minor:02x}:{}", found.ino());
    // `1: FLOCK  ADVISORY  WRITE 4242 fe:00:1234 0 EOF`
    fs::read_to_string("/proc/locks")
        .ok()?
        .lines()
        .map(|line| line.split_ascii_whitespace().collect::<Vec<_>>())
        .find(|words| words.get(1) == Some(&"FLOCK") && words.get(5) == Some(&inode.as_str()))?
        .get(4)?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests;
