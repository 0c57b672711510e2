//! The clients of object storage. Their credentials stand in the address, or come from the
//! environment or the machine.

use std::sync::Arc;

use object_store::{
    ObjectStore, RetryConfig, StaticCredentialProvider,
    aws::{
        AmazonS3Builder,
        AmazonS3ConfigKey::{Endpoint, Region, S3Endpoint},
        AwsCredential,
    },
    azure::{AzureAccessKey, AzureConfigKey, AzureCredential, MicrosoftAzureBuilder},
    gcp::GoogleCloudStorageBuilder,
};
use posthaste_engine::{SinkError, is_plain_name};
use url::Url;

use super::{
    connector::Connections,
    rows::{
        ACCESS_KEY_ID, ACCOUNT, ACCOUNT_KEY, CA_FILE, CREDENTIALS_FILE, ENDPOINT, REGION,
        SECRET_ACCESS_KEY,
    },
    wrong,
};
use crate::{
    address::Address,
    transport::{KeptTls, Tls},
};

/// The clients' words behind which they repeat a part of a file, or of an address.
const REPEATING: [&str; 2] = [
    "Unable to decode service account file",
    "Unable parse source url",
];

/// The client of the kind of storage that the scheme names.
pub(super) fn client(address: &Address, bucket: &str) -> Result<Box<dyn ObjectStore>, SinkError> {
    let endpoint = address.text(&ENDPOINT).map(endpoint).transpose()?;
    let tls = Tls {
        ca_file: address.file(&CA_FILE),
        without: "write `http://` in `endpoint`",
        ..Tls::default()
    };
    let connections = Connections(Arc::new(KeptTls::new(tls)));
    let build = match address.scheme() {
        "s3" => s3,
        "az" => azure,
        _ => google,
    };
    build(address, bucket, endpoint.as_deref(), connections)
}

/// An endpoint as the clients take it: they put a slash of their own behind it. A wrong one they
/// would find when they ask, break down over it, or tell of it with the whole text.
fn endpoint(text: &str) -> Result<String, SinkError> {
    let url = Url::parse(text).ok().filter(|url| {
        matches!(url.scheme(), "http" | "https")
            && url.username().is_empty()
            && url.password().is_none()
            && url.query().is_none()
            && url.fragment().is_none()
    });
    url.map(|url| url.as_str().trim_end_matches('/').to_owned())
        .ok_or_else(|| {
            wrong(
                "an endpoint is `http://` or `https://` with host and port, without a login; \
                 correct `endpoint`, or the relay's environment"
                    .to_owned(),
            )
        })
}

fn s3(
    address: &Address,
    bucket: &str,
    endpoint: Option<&str>,
    connections: Connections,
) -> Result<Box<dyn ObjectStore>, SinkError> {
    let mut builder = AmazonS3Builder::from_env()
        .with_bucket_name(bucket)
        .with_retry(no_retry())
        .with_http_connector(connections);
    if let Some(region) = address.text(&REGION) {
        builder = builder.with_region(region);
    }
    let region = builder.get_config_value(&Region);
    // It becomes a part of a host's name, over which the client would break down.
    if region.is_some_and(|region| !is_plain_name(&region)) {
        return Err(wrong(
            "a region is of letters, digits and `-`; correct `region`, or the relay's environment"
                .to_owned(),
        ));
    }
    match (
        address.text(&ACCESS_KEY_ID),
        address.text(&SECRET_ACCESS_KEY),
    ) {
        (Some(id), Some(secret)) => {
            let key = StaticCredentialProvider::new(AwsCredential {
                key_id: id.to_owned(),
                secret_key: secret.to_owned(),
                // That of the environment belongs to the key of the environment.
                token: None,
            });
            builder = builder.with_credentials(Arc::new(key));
        }
        (None, None) => {}
        _ => {
            return Err(wrong(
                "`access_key_id` and `secret_access_key` belong together: give both or none"
                    .to_owned(),
            ));
        }
    }
    let of_environment = builder
        .get_config_value(&S3Endpoint)
        .or_else(|| builder.get_config_value(&Endpoint));
    if let Some(endpoint) = endpoint {
        // The client prefers this key: an address with an endpoint is not to lead elsewhere.
        builder = builder
            .with_config(S3Endpoint, endpoint)
            .with_allow_http(true);
    } else if let Some(text) = of_environment {
        self::endpoint(&text)?;
    }
    built(builder.build())
}

fn azure(
    address: &Address,
    bucket: &str,
    endpoint: Option<&str>,
    connections: Connections,
) -> Result<Box<dyn ObjectStore>, SinkError> {
    let mut builder = MicrosoftAzureBuilder::from_env()
        .with_container_name(bucket)
        .with_retry(no_retry())
        .with_http_connector(connections);
    if let Some(account) = address.text(&ACCOUNT) {
        builder = builder.with_account(account);
    }
    let account = builder.get_config_value(&AzureConfigKey::AccountName);
    // It becomes a part of a host's name, which is shown: a connection string may stand there.
    if account.is_some_and(|account| !is_account(&account)) {
        return Err(wrong(
            "an account is of 3 to 24 small letters and digits; correct `account`, or the relay's \
             environment"
                .to_owned(),
        ));
    }
    // The client's words would show a part of a key.
    let access_key = |text: &str, giver: &str| {
        AzureAccessKey::try_new(text)
            .map_err(|_| wrong(format!("{giver} is not in base64; copy it as a whole")))
    };
    let of_environment = builder.get_config_value(&AzureConfigKey::AccessKey);
    if let Some(key) = address.text(&ACCOUNT_KEY) {
        let key = access_key(key, "`account_key`")?;
        let key = StaticCredentialProvider::new(AzureCredential::AccessKey(key));
        // Before a token of the environment.
        builder = builder.with_credentials(Arc::new(key));
    } else if let Some(key) = of_environment {
        access_key(&key, "AZURE_STORAGE_ACCOUNT_KEY")?;
    }
    if let Some(endpoint) = endpoint {
        builder = builder
            .with_endpoint(endpoint.to_owned())
            .with_allow_http(true);
    }
    built(builder.build())
}

fn google(
    address: &Address,
    bucket: &str,
    endpoint: Option<&str>,
    connections: Connections,
) -> Result<Box<dyn ObjectStore>, SinkError> {
    let is_plain = endpoint.is_some_and(|endpoint| endpoint.starts_with("http:"));
    let builder = match address.text(&CREDENTIALS_FILE) {
        Some(_) if is_plain => {
            return Err(wrong(
                "`credentials_file` goes with `https://` alone: everybody on the way could read a \
                 token; leave it out for an emulator, or correct `endpoint`"
                    .to_owned(),
            ));
        }
        // An emulator knows no accounts.
        None if is_plain => GoogleCloudStorageBuilder::new().with_bearer_token(""),
        Some(file) => GoogleCloudStorageBuilder::new().with_application_credentials(file),
        None => GoogleCloudStorageBuilder::from_env(),
    };
    let mut builder = builder
        .with_bucket_name(bucket)
        .with_retry(no_retry())
        .with_http_connector(connections);
    if let Some(endpoint) = endpoint {
        builder = builder.with_base_url(endpoint);
    }
    built(builder.build())
}

fn is_account(text: &str) -> bool {
    let is_known = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    (3..=24).contains(&text.len()) && text.bytes().all(is_known)
}

/// Deciding whether an event is tried again is the engine's.
fn no_retry() -> RetryConfig {
    RetryConfig {
        max_retries: 0,
        ..RetryConfig::default()
    }
}

fn built(
    client: object_store::Result<impl ObjectStore>,
) -> Result<Box<dyn ObjectStore>, SinkError> {
    let client = client.map_err(|error| {
        let mut words = error.to_string();
        for known in REPEATING {
            if let Some(at) = words.find(known) {
                words.truncate(at + known.len());
            }
        }
        wrong(format!(
            "{words}; correct it in the address, or in the relay's environment"
        ))
    })?;
    Ok(Box::new(client))
}
