//! The kinds of object storage, and the options of their addresses.

use posthaste_engine::{AddressForm, OptionDefault, OptionSpec, OptionValue, PlugIn};

pub(super) use crate::descriptors::{
    pubsub::CREDENTIALS_FILE,
    sqs::{ACCESS_KEY_ID, SECRET_ACCESS_KEY},
};

/// A row for each.
pub(super) static ROWS: &[&PlugIn] = &[&S3, &AZURE, &GCS, &FILE];

static S3: PlugIn = PlugIn {
    name: "s3",
    title: "Amazon S3",
    schemes: &["s3"],
    example: "s3://BUCKET/PREFIX?region=REGION",
    options: &[REGION, ACCESS_KEY_ID, SECRET_ACCESS_KEY, ENDPOINT, CA_FILE],
    ..FILE
};

static AZURE: PlugIn = PlugIn {
    name: "az",
    title: "Azure Blob Storage",
    schemes: &["az"],
    example: "az://CONTAINER/PREFIX?account=ACCOUNT",
    options: &[ACCOUNT, ACCOUNT_KEY, ENDPOINT, CA_FILE],
    ..FILE
};

static GCS: PlugIn = PlugIn {
    name: "gs",
    title: "Google Cloud Storage",
    schemes: &["gs"],
    example: "gs://BUCKET/PREFIX",
    options: &[CREDENTIALS_FILE, ENDPOINT, CA_FILE],
    ..FILE
};

const FILE: PlugIn = PlugIn {
    name: "file",
    title: "a folder",
    schemes: &["file"],
    example: "file:///FOLDER",
    address: AddressForm::File,
    options: &[],
    feature: None,
    server: None,
};

pub(super) const REGION: OptionSpec = OptionSpec {
    name: "region",
    value: OptionValue::Text,
    default: OptionDefault::Unset("`AWS_REGION`, or `us-east-1`"),
    help: "The region of the bucket.",
};

pub(super) const ACCOUNT: OptionSpec = OptionSpec {
    name: "account",
    value: OptionValue::Text,
    default: OptionDefault::Unset("`AZURE_STORAGE_ACCOUNT_NAME`"),
    help: "The storage account of the container.",
};

pub(super) const ACCOUNT_KEY: OptionSpec = OptionSpec {
    name: "account_key",
    value: OptionValue::Text,
    default: OptionDefault::Unset("found in the relay's environment, or from the machine"),
    help: "A key of the storage account. It is never shown.",
};

pub(super) const ENDPOINT: OptionSpec = OptionSpec {
    name: "endpoint",
    value: OptionValue::Text,
    default: OptionDefault::Unset("the provider's own"),
    help: "`http://` or `https://` of another server with the same interface.",
};

pub(super) const CA_FILE: OptionSpec = OptionSpec {
    name: "ca_file",
    value: OptionValue::File,
    default: OptionDefault::Unset("the system's authorities"),
    help: "PEM file of the authorities that the server's certificate must be signed by.",
};
