//! The configuration: defaults, then the file, then the environment, then the flags.
//!
//! Everything is parsed once, here, into validated types; no other code reads a file or an
//! environment variable for a setting.

mod file;
mod report;
mod secrets;
mod section;
mod tuning;
pub(crate) mod units;

use std::{env, path::Path};

use posthaste_engine::{Routes, Start, Template, is_plain_name, shown};

pub(crate) use file::FileConfig;
pub(crate) use report::ConfigError;
pub(crate) use tuning::{DestinationTuning, LogFormat, RelayTuning, start};

use crate::{plug_ins, secret::SecretUrl};

/// The environment variable of the store.
pub(crate) const FROM: &str = "POSTHASTE_FROM";
/// The environment variable of the destination.
pub(crate) const TO: &str = "POSTHASTE_TO";
/// The name of the destination of `--to`, unless another one is given.
const DEFAULT_DESTINATION: &str = "default";

/// A named target with everything that is known of it.
#[derive(Debug)]
pub(crate) struct Destination {
    pub(crate) name: String,
    pub(crate) url: SecretUrl,
    pub(crate) start: Start,
    pub(crate) topic: Option<Template>,
    pub(crate) key: Option<Template>,
    pub(crate) tuning: DestinationTuning,
}

/// The settings of a relay.
#[derive(Debug)]
pub(crate) struct RelayConfig {
    pub(crate) from: SecretUrl,
    pub(crate) destinations: Vec<Destination>,
    pub(crate) routes: Routes,
    pub(crate) tuning: RelayTuning,
}

/// The values of the relay's flags.
#[derive(Debug, Default)]
pub(crate) struct RelayFlags {
    pub(crate) from: Option<SecretUrl>,
    pub(crate) to: Option<SecretUrl>,
    pub(crate) destination: Option<String>,
    pub(crate) start: Option<Start>,
    pub(crate) tuning: RelayTuning,
    pub(crate) destination_tuning: DestinationTuning,
}

/// The store's URL by precedence: flag, environment, file.
///
/// # Errors
/// The file cannot be used, or nothing names a store.
pub(crate) fn store_url(
    flag: Option<SecretUrl>,
    file: Option<&Path>,
    flag_name: &str,
) -> Result<SecretUrl, ConfigError> {
    let file = file.map(FileConfig::read).transpose()?;
    from_layers(flag, file.and_then(|file| file.store), flag_name)
}

fn from_layers(
    flag: Option<SecretUrl>,
    file: Option<SecretUrl>,
    flag_name: &str,
) -> Result<SecretUrl, ConfigError> {
    if let Some(url) = &flag {
        warn_of_password(url, flag_name, FROM);
    }
    flag.or_else(|| from_env(FROM)).or(file).ok_or_else(|| {
        ConfigError::plain(format!(
            "no store is named\nfix: give {flag_name} URL, set {FROM}, or write [stores.main] into \
             a file and give --config FILE\n     a URL is {}",
            plug_ins::store_examples()
        ))
    })
}

fn from_env(name: &str) -> Option<SecretUrl> {
    env::var(name)
        .ok()
        .filter(|value| !value.is_empty())
        .map(SecretUrl::new)
}

/// A password on the command line works, and everybody on the machine can read it.
fn warn_of_password(url: &SecretUrl, flag: &str, variable: &str) {
    if url.holds_a_password() {
        warn_of_secret(flag, &format!("set {variable}"));
    }
}

fn warn_of_secret(flag: &str, mend: &str) {
    eprintln!("warning: the secret in {flag} can be seen in the list of processes; {mend} instead");
}

/// Puts the layers of a relay together.
///
/// # Errors
/// The first thing that cannot be used, with its fix.
pub(crate) fn relay(file: Option<&Path>, flags: RelayFlags) -> Result<RelayConfig, ConfigError> {
    let file = file.map(FileConfig::read).transpose()?.unwrap_or_default();
    let from = from_layers(flags.from, file.store, "--from")?;
    let mut destinations = file.destinations;

    if let Some(url) = &flags.to {
        warn_of_password(url, "--to", TO);
    }
    if let Some(url) = &flags.destination_tuning.claim_check {
        for (option, variable) in [
            ("secret_access_key=", "AWS_SECRET_ACCESS_KEY"),
            ("account_key=", "AZURE_STORAGE_ACCOUNT_KEY"),
        ] {
            if url.expose().contains(option) {
                warn_of_secret("--claim-check", &format!("set {variable}"));
            }
        }
    }
    let registry = flags.destination_tuning.schema_registry.as_ref();
    if registry.is_some_and(SecretUrl::holds_a_password) {
        warn_of_secret("--schema-registry", "write it into a file for --config");
    }
    let to = flags.to.map(|url| ("--to", url));
    match to.or_else(|| Some((TO, from_env(TO)?))) {
        Some((giver, url)) => {
            let name = flags
                .destination
                .unwrap_or_else(|| DEFAULT_DESTINATION.to_owned());
            check_destination_name(&name).map_err(|reason| {
                ConfigError::plain(format!(
                    "--destination: {}",
                    reason.replace("; ", "\nfix: ")
                ))
            })?;
            add_destination(&mut destinations, name, giver, url)?;
        }
        None if flags.destination.is_some() => {
            return Err(ConfigError::plain(format!(
                "--destination names the destination of --to, which is not given\nfix: give --to \
                 URL, or set {TO}"
            )));
        }
        None => {}
    }
    if destinations.is_empty() {
        return Err(ConfigError::plain(format!(
            "no destination is named\nfix: give --to URL, set {TO}, or write [destinations.NAME] \
             into a file and give --config FILE\n     a URL is {}",
            plug_ins::sink_examples()
        )));
    }
    for destination in &mut destinations {
        destination.start = flags.start.unwrap_or(destination.start);
        destination.tuning = flags.destination_tuning.over(&destination.tuning);
        destination.tuning.check().map_err(|reason| {
            ConfigError::plain(format!("destination `{}`: {reason}", destination.name))
        })?;
    }
    let tuning = flags.tuning.over(&file.tuning);
    tuning.check().map_err(ConfigError::plain)?;
    let routes = file.routes.compile(&destinations)?;
    Ok(RelayConfig {
        from,
        destinations,
        routes,
        tuning,
    })
}

/// A flag does not change the address of a destination of the file: its progress belongs to its
/// name, and events that went elsewhere are not sent again.
fn add_destination(
    destinations: &mut Vec<Destination>,
    name: String,
    giver: &str,
    url: SecretUrl,
) -> Result<(), ConfigError> {
    match destinations.iter().find(|known| known.name == name) {
        Some(known) if known.url.expose() == url.expose() => {}
        Some(known) => {
            return Err(ConfigError::plain(format!(
                "destination `{name}` goes to {} by the file of --config, and to {url} by \
                 {giver}\nfix: take {giver} away, or change the file; --destination OTHER makes a \
                 destination beside it",
                known.url
            )));
        }
        None => destinations.push(Destination {
            name,
            url,
            start: Start::default(),
            topic: None,
            key: None,
            tuning: DestinationTuning::default(),
        }),
    }
    Ok(())
}

/// Names stand in tables, metrics and flags: they are kept plain.
fn check_destination_name(name: &str) -> Result<(), String> {
    // Names are parts of paths, where these mean other folders.
    match is_plain_name(name) && !matches!(name, "." | "..") {
        true => Ok(()),
        false => Err(format!(
            "`{}` cannot name a destination; use 1 to 63 letters, digits, `-`, `_` and `.`, \
             not `.` or `..` alone",
            shown(name)
        )),
    }
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
