//! The URL of a PostgreSQL store, as libpq users write it.

mod libpq;

use std::{env, fmt, path::PathBuf, time::Duration};

use posthaste_engine::{StoreError, shown};
use tokio_postgres::config::{ChannelBinding, Host, SslMode as DriverSslMode, TargetSessionAttrs};

use crate::{descriptors::postgres::POSTGRES, percent};

/// How far the server's certificate is believed, with libpq's meanings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SslMode {
    /// Never TLS.
    Disable,
    /// TLS if the server offers it, whoever it is (libpq's default).
    Prefer,
    /// TLS, whoever the server is; with `sslrootcert` as `verify-ca`.
    Require,
    /// TLS, and the certificate comes from a trusted authority.
    VerifyCa,
    /// The same, and it names the host.
    VerifyFull,
}

/// A parsed URL. Its password is never printed.
#[derive(Clone)]
pub(super) struct PostgresConfig {
    pub(super) driver: tokio_postgres::Config,
    pub(super) ssl_mode: SslMode,
    /// PEM file of trusted authorities; none: the system's.
    pub(super) ssl_root_cert: Option<PathBuf>,
}

impl fmt::Debug for PostgresConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresConfig")
            .field("hosts", &self.driver.get_hosts())
            .field("ports", &self.driver.get_ports())
            .field("user", &self.driver.get_user())
            .field("dbname", &self.driver.get_dbname())
            .field("ssl_mode", &self.ssl_mode)
            .finish_non_exhaustive()
    }
}

const SSL_MODES: [(&str, SslMode); 5] = [
    ("disable", SslMode::Disable),
    ("prefer", SslMode::Prefer),
    ("require", SslMode::Require),
    ("verify-ca", SslMode::VerifyCa),
    ("verify-full", SslMode::VerifyFull),
];

fn wrong(reason: String) -> StoreError {
    StoreError::Misconfigured {
        operation: "read the store's URL",
        reason,
    }
}

impl PostgresConfig {
    /// Parses `postgres://user:password@host:port,host:port/db?option=value`. Parts that
    /// it leaves open come from libpq's variables and files.
    ///
    /// # Errors
    /// [`StoreError::Misconfigured`]. It repeats nothing that may be of a password, not even of one
    /// that was written without its escapes.
    pub(super) fn parse(url: &str) -> Result<Self, StoreError> {
        Self::parse_with(url, &|name| env::var(name).ok())
    }

    /// The server, database and role that it means.
    pub(super) fn place(&self) -> String {
        let driver = &self.driver;
        let hosts = driver.get_hosts().iter().map(|host| match host {
            Host::Tcp(name) => name.clone(),
            Host::Unix(directory) => directory.display().to_string(),
        });
        let ports = driver.get_ports().iter();
        let ports: Vec<_> = ports.map(ToString::to_string).collect();
        let port = match ports.is_empty() {
            true => DEFAULT_PORT.to_string(),
            false => ports.join(","),
        };
        let user = driver.get_user().unwrap_or_default();
        format!(
            "role `{}`, database `{}`, server {} port {port}",
            shown(user),
            shown(driver.get_dbname().unwrap_or(user)),
            hosts.collect::<Vec<_>>().join(",")
        )
    }

    fn parse_with(url: &str, variable: libpq::Variable<'_>) -> Result<Self, StoreError> {
        let beyond_authority = url
            .split_once("://")
            .and_then(|(_, rest)| rest.split_once(['/', '?']))
            .is_some_and(|(_, beyond)| beyond.contains('@'));
        Self::parse_parts(url, variable).map_err(|error| match beyond_authority {
            false => error,
            true => wrong(
                "an `@` stands behind the first `/` or `?`, where it ends no password: write in \
                 user and password `/` as %2F and `?` as %3F, and elsewhere `@` as %40"
                    .to_owned(),
            ),
        })
    }

    fn parse_parts(url: &str, variable: libpq::Variable<'_>) -> Result<Self, StoreError> {
        let rest = ["postgres://", "postgresql://"]
            .iter()
            .find_map(|scheme| url.strip_prefix(scheme))
            .ok_or_else(|| wrong("it must begin with postgres://".to_owned()))?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, hosts) = match authority.rsplit_once('@') {
            Some((login, hosts)) => (Some(login), hosts),
            None => (None, authority),
        };

        let mut parsed = Parsed::default();
        if let Some(login) = login {
            let (user, password) = login.split_once(':').unwrap_or((login, ""));
            parsed.set("user", decode("user", user)?)?;
            if !password.is_empty() {
                parsed.set("password", decode("password", password)?)?;
            }
        }
        // It may be what ends the login, the `/` before it being of the password.
        if database.contains('@') {
            return Err(wrong("in the database's name write `@` as %40".to_owned()));
        }
        if !database.is_empty() {
            parsed.set("dbname", decode("database", database)?)?;
        }
        parsed.hosts(hosts)?;
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) =
                pair.split_once('=')
                    .ok_or_else(|| match POSTGRES.plug_in.option(pair) {
                        Some(_) => wrong(format!("option `{pair}` has no value: write {pair}=…")),
                        None => unknown(pair),
                    })?;
            let value = decode(name, value)?;
            parsed.set(name, value)?;
        }
        libpq::fill(&mut parsed, variable)?;
        parsed.finish()
    }
}

#[derive(Default)]
struct Parsed {
    driver: tokio_postgres::Config,
    ssl_mode: Option<SslMode>,
    ssl_root_cert: Option<PathBuf>,
    hosts: Vec<String>,
    ports: Vec<u16>,
    service: Option<String>,
    password_file: Option<PathBuf>,
    /// The options that have been set.
    given: Vec<&'static str>,
}

impl Parsed {
    fn hosts(&mut self, list: &str) -> Result<(), StoreError> {
        let mut ports = Vec::new();
        for host in list.split(',').filter(|host| !host.is_empty()) {
            let (name, port) = split_port(host)?;
            self.hosts.push(decode("host", name)?);
            self.given.push("host");
            ports.push(port);
        }
        if ports.iter().any(Option::is_some) {
            let with_default = ports.into_iter().map(|port| port.unwrap_or(DEFAULT_PORT));
            self.ports = with_default.collect();
            self.given.push("port");
        }
        Ok(())
    }

    fn is_given(&self, option: &str) -> bool {
        self.given.contains(&option)
    }

    fn set(&mut self, name: &str, value: String) -> Result<(), StoreError> {
        let option = POSTGRES.plug_in.option(name).ok_or_else(|| unknown(name))?;
        option
            .check(&value)
            .map_err(|reason| wrong(format!("{name}={}: {reason}", shown(&value))))?;
        // Checked by its row.
        let number = || value.parse::<u64>().unwrap_or_default();
        let driver = &mut self.driver;
        match name {
            "application_name" => drop(driver.application_name(value)),
            "channel_binding" => {
                driver.channel_binding(match value.as_str() {
                    "disable" => ChannelBinding::Disable,
                    "prefer" => ChannelBinding::Prefer,
                    _ => ChannelBinding::Require,
                });
            }
            "connect_timeout" => drop(driver.connect_timeout(Duration::from_secs(number()))),
            "dbname" => drop(driver.dbname(value)),
            "host" => self.hosts = value.split(',').map(ToOwned::to_owned).collect(),
            "port" => {
                self.ports = value.split(',').map(port).collect::<Result<_, _>>()?;
            }
            "keepalives" => drop(driver.keepalives(value != "0")),
            "keepalives_idle" => drop(driver.keepalives_idle(Duration::from_secs(number()))),
            "keepalives_interval" => {
                driver.keepalives_interval(Duration::from_secs(number()));
            }
            "options" => drop(driver.options(value)),
            "passfile" => self.password_file = Some(value.into()),
            "password" => drop(driver.password(value)),
            "service" => self.service = Some(value),
            "sslmode" => {
                let known = SSL_MODES.iter().find(|(name, _)| *name == value);
                self.ssl_mode = known.map(|(_, mode)| *mode);
            }
            "sslrootcert" => self.ssl_root_cert = (value != "system").then(|| value.into()),
            "target_session_attrs" => {
                driver.target_session_attrs(match value.as_str() {
                    // The server is asked for its role anyway, and a replica is refused.
                    "any" => TargetSessionAttrs::Any,
                    _ => TargetSessionAttrs::ReadWrite,
                });
            }
            "tcp_user_timeout" => {
                driver.tcp_user_timeout(Duration::from_millis(number()));
            }
            "user" => drop(driver.user(value)),
            _ => return Err(unknown(name)),
        }
        self.given.push(option.name);
        Ok(())
    }

    fn finish(mut self) -> Result<PostgresConfig, StoreError> {
        for option in POSTGRES.plug_in.options {
            if let Some(default) = option.default_value()
                && !self.is_given(option.name)
            {
                self.set(option.name, default.to_owned())?;
            }
        }
        if self.hosts.is_empty() {
            self.hosts.push(DEFAULT_HOST.to_owned());
        }
        if self.ports.len() > 1 && self.ports.len() != self.hosts.len() {
            return Err(wrong(format!(
                "{} hosts and {} ports: give one port, or one for each host",
                self.hosts.len(),
                self.ports.len()
            )));
        }
        for host in &self.hosts {
            self.driver.host(host);
        }
        for &port in &self.ports {
            self.driver.port(port);
        }
        // Several hosts are a primary and its standbys: the one that can be used is meant.
        if self.hosts.len() > 1 && !self.is_given("target_session_attrs") {
            self.driver
                .target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
        if self.driver.get_user().is_none() {
            return Err(wrong(
                "it names no user: write postgres://USER@HOST/DB, or set PGUSER".to_owned(),
            ));
        }
        let ssl_mode = match self.ssl_mode.unwrap_or(SslMode::Prefer) {
            SslMode::Require if self.ssl_root_cert.is_some() => SslMode::VerifyCa,
            mode => mode,
        };
        self.driver.ssl_mode(match ssl_mode {
            SslMode::Disable => DriverSslMode::Disable,
            SslMode::Prefer => DriverSslMode::Prefer,
            _ => DriverSslMode::Require,
        });
        Ok(PostgresConfig {
            driver: self.driver,
            ssl_mode,
            ssl_root_cert: self.ssl_root_cert,
        })
    }
}

fn port(text: &str) -> Result<u16, StoreError> {
    // Not repeated: without the `@` behind it, a password stands where a port does.
    text.parse()
        .ok()
        .filter(|&port| port > 0)
        .ok_or_else(|| wrong("what follows a host's `:` is not a port, 1 to 65535".to_owned()))
}

const DEFAULT_HOST: &str = "localhost";
const DEFAULT_PORT: u16 = 5432;

fn split_port(host: &str) -> Result<(&str, Option<u16>), StoreError> {
    // An IPv6 address is written in brackets.
    if let Some(rest) = host.strip_prefix('[') {
        let (name, after) = rest
            .split_once(']')
            .ok_or_else(|| wrong("a host lacks its closing bracket".to_owned()))?;
        return match after.strip_prefix(':') {
            Some(text) => Ok((name, Some(port(text)?))),
            None if after.is_empty() => Ok((name, None)),
            None => Err(wrong(
                "behind a host's `]` stands `:PORT` or nothing".to_owned(),
            )),
        };
    }
    match host.rsplit_once(':') {
        Some((name, text)) => Ok((name, Some(port(text)?))),
        None => Ok((host, None)),
    }
}

/// An unknown option. Its name is not repeated: it may be the rest of a password that holds a bare
/// `&`.
fn unknown(name: &str) -> StoreError {
    let known = POSTGRES.plug_in.option_names();
    wrong(match POSTGRES.plug_in.nearest_option(name) {
        Some(near) => format!("an unknown option: did you mean `{near}`? Known: {known}"),
        None => format!("an unknown option, known are: {known} (write `&` in a value as %26)"),
    })
}

/// Percent-decoding; the error names the part, never its value, which may be a password.
fn decode(part: &str, text: &str) -> Result<String, StoreError> {
    percent::decode(text)
        .ok_or_else(|| wrong(format!("the {part} is not valid percent-encoded UTF-8")))
}

#[cfg(test)]
mod tests;
