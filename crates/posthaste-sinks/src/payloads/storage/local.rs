//! Objects as files of a folder.

use std::{
    fs::{self, File},
    io::{self, Write},
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

use bytes::Bytes;
use posthaste_engine::SinkError;

use super::{fault::Fault, wrong};
use crate::address::Address;

/// A folder that is there.
#[derive(Debug, Clone)]
pub(in crate::payloads) struct Local {
    folder: PathBuf,
    /// Its address.
    url: String,
}

impl Local {
    pub(super) fn of(address: &Address) -> Result<Self, SinkError> {
        let folder = PathBuf::from(std::ffi::OsString::from_vec(address.path()?));
        if !folder.is_absolute() {
            return Err(wrong(
                "a folder is named from the root: consumers read the address elsewhere; write \
                 file:///FOLDER"
                    .to_owned(),
            ));
        }
        let url = format!("file://{}", escaped(&folder));
        let url = url.trim_end_matches('/').to_owned();
        Ok(Self { folder, url })
    }

    pub(super) fn reference(&self, name: &str) -> String {
        format!("{}/{name}", self.url)
    }

    pub(super) async fn put(&self, name: &str, bytes: Bytes) -> Result<(), Fault> {
        let path = self.folder.join(name);
        let root = self.folder.clone();
        self.blocking(move || write(&root, &path, &bytes)).await
    }

    /// Writes a file, and removes it.
    pub(super) async fn probe(&self) -> Result<(), Fault> {
        let path = self.folder.join("check");
        self.blocking(move || {
            let (path, file) = create_unfinished(&path)?;
            file.sync_all()?;
            fs::remove_file(&path)
        })
        .await
    }

    async fn blocking(
        &self,
        work: impl FnOnce() -> io::Result<()> + Send + 'static,
    ) -> Result<(), Fault> {
        let done = tokio::task::spawn_blocking(work).await;
        let failed = match done {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "the thread that writes broke down (a bug)".to_owned(),
        };
        let folder = self.folder.display();
        Err(Fault::Away(
            format!("writing in `{folder}`: {failed}"),
            "make the folder, let the relay's user write there, and give its device room",
        ))
    }
}

/// Writes beside the file, and gives it the name once it is on the device.
fn write(root: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(root);
    if !folder.is_dir() {
        // The folder itself is the operator's: a path that is not mounted must not fill the disk.
        fs::metadata(root)?;
        fs::create_dir_all(folder)?;
        File::open(root)?.sync_all()?;
    }
    let (unfinished, mut file) = create_unfinished(path)?;
    let written = file
        .write_all(bytes)
        .and_then(|()| file.sync_all())
        .and_then(|()| fs::rename(&unfinished, path));
    if let Err(error) = written {
        // The rest of it has no name that anybody reads.
        let _ = fs::remove_file(&unfinished);
        return Err(error);
    }
    File::open(folder)?.sync_all()
}

/// Makes a file beside this one that nobody else writes: a relay of another container may have the
/// same number of a process.
pub(super) fn create_unfinished(path: &Path) -> io::Result<(PathBuf, File)> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    loop {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{}-{number}.unfinished", std::process::id()));
        match File::create_new(&name) {
            Ok(file) => return Ok((name.into(), file)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
}

/// The path as an address has it.
fn escaped(path: &Path) -> String {
    let mut out = String::new();
    for byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'_' | b'-' | b'~' => {
                out.push(char::from(*byte));
            }
            other => out += &format!("%{other:02X}"),
        }
    }
    out
}
