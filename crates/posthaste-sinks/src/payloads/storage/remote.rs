//! Objects in a bucket.

use bytes::Bytes;
use object_store::{
    Error, ObjectStore, PutMode, PutOptions, PutPayload, UpdateVersion, path::Path,
};
use posthaste_engine::SinkError;

use super::{
    client::client,
    fault::{Fault, is_bare, missing},
    wrong,
};
use crate::address::Address;

/// A bucket, and the names of our objects in it.
#[derive(Debug)]
pub(in crate::payloads) struct Remote {
    store: Box<dyn ObjectStore>,
    /// Ends with a slash, unless it is empty.
    prefix: String,
    /// `SCHEME://BUCKET`.
    bucket: String,
}

impl Remote {
    pub(super) fn of(address: &Address) -> Result<Self, SinkError> {
        let path = address.path()?;
        let path = str::from_utf8(&path).ok().filter(|path| is_plain(path));
        let (bucket, prefix) = path
            .map(|path| path.split_once('/').unwrap_or((path, "")))
            .filter(|(bucket, _)| !bucket.is_empty())
            .ok_or_else(|| {
                wrong(format!(
                    "write {}://BUCKET/PREFIX, of letters, digits, `.`, `_` and `-` (no part of it \
                     is `.`, `..` or empty), without a login: credentials stand in options, or in \
                     the relay's environment",
                    address.scheme()
                ))
            })?;
        let prefix = prefix.trim_matches('/');
        Ok(Self {
            store: client(address, bucket)?,
            prefix: match prefix {
                "" => String::new(),
                prefix => format!("{prefix}/"),
            },
            bucket: format!("{}://{bucket}", address.scheme()),
        })
    }

    pub(super) fn reference(&self, name: &str) -> String {
        format!("{}/{}{name}", self.bucket, self.prefix)
    }

    pub(super) async fn put(&self, name: &str, bytes: Bytes) -> Result<(), Fault> {
        let put = self.put_as(name, bytes, PutMode::Overwrite).await;
        put.map_err(|error| Fault::of(&error))
    }

    /// Asks to write an object instead of one that is not there: the storage looks at credentials
    /// and rights, and refuses. One that knows no conditions writes an empty object; so does S3
    /// where we may not read, since it then lets nobody replace objects. Others answer without a
    /// code that nothing is there, as if they were no storage: a new object tells whether they are.
    pub(super) async fn probe(&self) -> Result<(), Fault> {
        let version = UpdateVersion {
            e_tag: Some("\"posthaste\"".to_owned()),
            version: Some("1".to_owned()),
        };
        let probe = |mode| self.put_as("posthaste-check", Bytes::new(), mode);
        let probed = match probe(PutMode::Update(version)).await {
            Err(Error::PermissionDenied { .. }) => probe(PutMode::Create).await,
            Err(error) if is_bare(&error) => probe(PutMode::Create).await,
            probed => probed,
        };
        let Err(error) = probed else {
            return Ok(());
        };
        if let Some(fault) = missing(&error) {
            return Err(fault);
        }
        match error {
            Error::Precondition { .. } | Error::NotFound { .. } | Error::AlreadyExists { .. } => {
                Ok(())
            }
            error => Err(Fault::of(&error)),
        }
    }

    async fn put_as(&self, name: &str, bytes: Bytes, mode: PutMode) -> Result<(), Error> {
        let path = Path::from(format!("{}{name}", self.prefix));
        let options = PutOptions::from(mode);
        let payload = PutPayload::from_bytes(bytes);
        self.store.put_opts(&path, payload, options).await.map(drop)
    }
}

fn is_plain(path: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/');
    // The client writes these parts in other words.
    let mut parts = path.trim_matches('/').split('/');
    path.chars().all(plain) && parts.all(|part| !matches!(part, "" | "." | ".."))
}
