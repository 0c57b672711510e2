//! Objects in a bucket.

use std::sync::Arc;

use bytes::Bytes;
use object_store::{
    Error, ObjectStore, PutMode, PutOptions, PutPayload, RetryConfig, UpdateVersion,
    aws::AmazonS3Builder, azure::MicrosoftAzureBuilder, gcp::GoogleCloudStorageBuilder, path::Path,
};
use posthaste_engine::SinkError;

use super::{
    connector::Connections,
    fault::{Fault, is_no_bucket},
    rows::{ACCESS_KEY_ID, ACCOUNT, CA_FILE, ENDPOINT, REGION, SECRET_ACCESS_KEY},
    wrong,
};
use crate::{
    address::Address,
    transport::{KeptTls, Tls},
};

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
                    "write {}://BUCKET/PREFIX, of letters, digits, `.`, `_` and `-`, without a \
                     login: credentials stand in the relay's environment",
                    address.scheme()
                ))
            })?;
        let prefix = prefix.trim_matches('/');
        Ok(Self {
            store: store(address, bucket)?,
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
    /// where we may not read, since it then lets nobody replace objects.
    pub(super) async fn probe(&self) -> Result<(), Fault> {
        let version = UpdateVersion {
            e_tag: Some("\"posthaste\"".to_owned()),
            version: Some("1".to_owned()),
        };
        let probe = |mode| self.put_as("posthaste-check", Bytes::new(), mode);
        let probed = match probe(PutMode::Update(version)).await {
            Err(Error::PermissionDenied { .. }) => probe(PutMode::Create).await,
            probed => probed,
        };
        match probed {
            Ok(()) => Ok(()),
            Err(error) if is_no_bucket(&error) => Err(Fault::no_bucket()),
            Err(
                Error::Precondition { .. } | Error::NotFound { .. } | Error::AlreadyExists { .. },
            ) => Ok(()),
            Err(error) => Err(Fault::of(&error)),
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
    path.chars().all(plain)
}

/// The client of a kind of storage. Credentials come from the environment, or from the machine.
fn store(address: &Address, bucket: &str) -> Result<Box<dyn ObjectStore>, SinkError> {
    let tls = Tls {
        ca_file: address.file(&CA_FILE),
        without: "write `http://` in `endpoint`",
        ..Tls::default()
    };
    let connections = Connections(Arc::new(KeptTls::new(tls)));
    let endpoint = address.text(&ENDPOINT);
    if endpoint.is_some_and(|url| !url.starts_with("http://") && !url.starts_with("https://")) {
        return Err(wrong(
            "`endpoint` begins with `http://` or `https://`".to_owned(),
        ));
    }
    // Deciding whether an event is tried again is the engine's.
    let retry = RetryConfig {
        max_retries: 0,
        ..RetryConfig::default()
    };
    let built: Result<Box<dyn ObjectStore>, Error> = match address.scheme() {
        "s3" => {
            let mut builder = AmazonS3Builder::from_env()
                .with_bucket_name(bucket)
                .with_retry(retry)
                .with_http_connector(connections);
            if let Some(region) = address.text(&REGION) {
                builder = builder.with_region(region);
            }
            match (
                address.text(&ACCESS_KEY_ID),
                address.text(&SECRET_ACCESS_KEY),
            ) {
                (Some(id), Some(secret)) => {
                    builder = builder
                        .with_access_key_id(id)
                        .with_secret_access_key(secret);
                }
                (None, None) => {}
                _ => {
                    return Err(wrong(
                        "`access_key_id` and `secret_access_key` belong together: give both or \
                         none"
                            .to_owned(),
                    ));
                }
            }
            if let Some(endpoint) = endpoint {
                builder = builder.with_endpoint(endpoint).with_allow_http(true);
            }
            builder.build().map(|store| Box::new(store) as _)
        }
        "az" => {
            let mut builder = MicrosoftAzureBuilder::from_env()
                .with_container_name(bucket)
                .with_retry(retry)
                .with_http_connector(connections);
            if let Some(account) = address.text(&ACCOUNT) {
                builder = builder.with_account(account);
            }
            if let Some(endpoint) = endpoint {
                builder = builder
                    .with_endpoint(endpoint.to_owned())
                    .with_allow_http(true);
            }
            builder.build().map(|store| Box::new(store) as _)
        }
        _ => {
            let mut builder = GoogleCloudStorageBuilder::from_env()
                .with_bucket_name(bucket)
                .with_retry(retry)
                .with_http_connector(connections);
            if let Some(endpoint) = endpoint {
                builder = builder.with_base_url(endpoint);
            }
            builder.build().map(|store| Box::new(store) as _)
        }
    };
    built.map_err(|error| {
        wrong(format!(
            "{error}; correct it in the address, or in the relay's environment"
        ))
    })
}
