//! The address of a registry, and its options.

use posthaste_engine::{AddressForm, OptionDefault, OptionSpec, OptionValue, PlugIn};

pub(super) static REGISTRY: PlugIn = PlugIn {
    name: "schema-registry",
    title: "a schema registry",
    schemes: &["http", "https"],
    example: "https://USER:PASSWORD@HOST:8081",
    address: AddressForm::Servers,
    options: &[CA_FILE, CERT_FILE, KEY_FILE],
    feature: None,
    server: None,
};

const fn file(name: &'static str, default: &'static str, help: &'static str) -> OptionSpec {
    OptionSpec {
        name,
        value: OptionValue::File,
        default: OptionDefault::Unset(default),
        help,
    }
}

pub(super) const CA_FILE: OptionSpec = file(
    "ca_file",
    "the system's authorities",
    "PEM file with the authorities to trust.",
);
pub(super) const CERT_FILE: OptionSpec = file(
    "cert_file",
    "none",
    "PEM file with our certificate, for registries that ask for one.",
);
pub(super) const KEY_FILE: OptionSpec = file("key_file", "none", "PEM file with its key.");
