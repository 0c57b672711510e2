//! The address of a store: `mysql://user:password@host:port/database?ssl-mode=…`.

use std::{fmt, path::PathBuf, time::Duration};

use mysql_async::{OptsBuilder, SslOpts};
use posthaste_engine::{StoreError, parse_duration, shown};

use super::error::misconfigured;
use crate::{
    descriptors::mysql::{CONNECT_TIMEOUT, HOLE_PROOF, MYSQL, SSL_MODE},
    percent,
};

const OPERATION: &str = "read the store's address";

/// An address, parsed.
#[derive(Clone, PartialEq, Eq)]
pub struct MysqlConfig {
    /// The server's name or IP address.
    pub host: String,
    /// Its TCP port.
    pub port: u16,
    /// The user.
    pub user: String,
    /// The password, if there is one.
    pub password: Option<String>,
    /// The database.
    pub database: String,
    /// How far the server's certificate is believed.
    pub ssl_mode: SslMode,
    /// A PEM file of trusted authorities; none: the system's.
    pub ssl_ca: Option<PathBuf>,
    /// How long to try to connect.
    pub connect_timeout: Duration,
    /// How holes are proven.
    pub hole_proof: HoleProof,
}

/// How far the server's certificate is believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SslMode {
    /// No TLS.
    Disabled,
    /// TLS where the server has it, whoever it is.
    Preferred,
    /// TLS, whoever the server is.
    Required,
    /// A certificate of a known authority. The driver asks for the host's name in it, too.
    VerifyCa,
    /// A certificate of a known authority, with the host's name.
    VerifyIdentity,
}

/// How it is proven that no event will come for a number that was not seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HoleProof {
    /// The server's instruments tell who writes.
    Instruments,
    /// The same; where they cannot be trusted, a lock that is granted while nobody writes.
    Lock,
    /// Nothing is proven.
    Nothing,
}

impl MysqlConfig {
    /// Parses an address.
    ///
    /// # Errors
    /// [`StoreError::Misconfigured`] that names what is wrong.
    pub fn parse(url: &str) -> Result<Self, StoreError> {
        let rest = ["mysql://", "mariadb://"]
            .iter()
            .find_map(|scheme| url.strip_prefix(scheme))
            .ok_or_else(|| wrong(format!("it must begin with `mysql://`, as in `{EXAMPLE}`")))?;
        let (rest, options) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, server) = authority.rsplit_once('@').unwrap_or(("", authority));
        let (user, password) = match login.split_once(':') {
            Some((user, password)) => (user, Some(decoded(password)?)),
            None => (login, None),
        };
        let (host, port) = host_and_port(server)?;
        let mut config = Self {
            host: if host.is_empty() {
                "localhost".to_owned()
            } else {
                decoded(host)?
            },
            port,
            user: decoded(user)?,
            password,
            database: decoded(database)?,
            ssl_mode: ssl_mode(SSL_MODE.default_value().unwrap_or_default()),
            ssl_ca: None,
            connect_timeout: duration(CONNECT_TIMEOUT.default_value().unwrap_or_default()),
            hole_proof: hole_proof(HOLE_PROOF.default_value().unwrap_or_default()),
        };
        if config.user.is_empty() {
            return Err(wrong(format!("the user is missing: write `{EXAMPLE}`")));
        }
        if config.database.is_empty() {
            return Err(wrong(format!("the database is missing: write `{EXAMPLE}`")));
        }
        for option in options.split('&').filter(|option| !option.is_empty()) {
            config.set(option)?;
        }
        Ok(config)
    }

    fn set(&mut self, option: &str) -> Result<(), StoreError> {
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        let known = MYSQL.plug_in.option(name).ok_or_else(|| {
            let known = MYSQL.plug_in.option_names();
            wrong(format!(
                "unknown option `{}`: the options are `{known}`",
                shown(name)
            ))
        })?;
        let value = decoded(value)?;
        known.check(&value).map_err(wrong)?;
        match known.name {
            "ssl-mode" => self.ssl_mode = ssl_mode(&value),
            "ssl-ca" => self.ssl_ca = Some(PathBuf::from(value)),
            "connect-timeout" => self.connect_timeout = duration(&value),
            _ => self.hole_proof = hole_proof(&value),
        }
        Ok(())
    }

    /// The driver's options, with TLS or without.
    pub(super) fn driver(
        &self,
        operation: &'static str,
        tls: bool,
    ) -> Result<OptsBuilder, StoreError> {
        let ssl = match tls {
            true => Some(self.ssl(operation)?),
            false => None,
        };
        Ok(OptsBuilder::default()
            .ip_or_hostname(self.host.clone())
            .tcp_port(self.port)
            .user(Some(self.user.clone()))
            .pass(self.password.clone())
            .db_name(Some(self.database.clone()))
            .prefer_socket(false)
            // Rows that a statement has found count, also where it changed nothing of them.
            .client_found_rows(true)
            .stmt_cache_size(64)
            .tcp_keepalive(Some(Duration::from_secs(10)))
            .ssl_opts(ssl))
    }

    fn ssl(&self, operation: &'static str) -> Result<SslOpts, StoreError> {
        let verifies = matches!(self.ssl_mode, SslMode::VerifyCa | SslMode::VerifyIdentity);
        let options = SslOpts::default()
            .with_danger_accept_invalid_certs(!verifies)
            .with_danger_skip_domain_validation(self.ssl_mode != SslMode::VerifyIdentity);
        if let Some(file) = &self.ssl_ca {
            // The driver's own words name no file.
            std::fs::File::open(file).map_err(|error| {
                let file = file.display();
                misconfigured(
                    operation,
                    format!("`ssl-ca={file}` cannot be read: {error}"),
                )
            })?;
            let roots = vec![file.clone().into()];
            return Ok(options
                .with_disable_built_in_roots(true)
                .with_root_certs(roots));
        }
        if !verifies {
            // The driver wants some authority, also where none is asked: its own.
            return Ok(options);
        }
        let found = rustls_native_certs::load_native_certs();
        if found.certs.is_empty() {
            return Err(misconfigured(
                operation,
                "this system has no list of trusted authorities: give one with `ssl-ca`",
            ));
        }
        let roots = found.certs.into_iter();
        let roots = roots.map(|cert| cert.as_ref().to_vec().into()).collect();
        Ok(options
            .with_disable_built_in_roots(true)
            .with_root_certs(roots))
    }

    /// The address without secrets.
    pub(super) fn place(&self) -> String {
        format!("{}:{}/{}", self.host, self.port, self.database)
    }
}

impl fmt::Debug for MysqlConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MysqlConfig")
            .field("place", &self.place())
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

const EXAMPLE: &str = "mysql://user@host/database";

fn host_and_port(server: &str) -> Result<(&str, u16), StoreError> {
    let (host, port) = match server
        .strip_prefix('[')
        .and_then(|rest| rest.split_once(']'))
    {
        Some((host, port)) => (host, port.strip_prefix(':')),
        None => match server.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (server, None),
        },
    };
    let Some(port) = port else {
        return Ok((host, 3306));
    };
    let number = port.parse().ok().filter(|&number: &u16| number > 0);
    let number = number.ok_or_else(|| {
        wrong(format!(
            "the port `{}` is no number from 1 to 65535",
            shown(port)
        ))
    })?;
    Ok((host, number))
}

fn decoded(text: &str) -> Result<String, StoreError> {
    percent::decode(text).ok_or_else(|| {
        wrong("`%` begins two hexadecimal digits of UTF-8: write a plain `%` as `%25`")
    })
}

fn duration(text: &str) -> Duration {
    parse_duration(text).unwrap_or_default()
}

fn ssl_mode(word: &str) -> SslMode {
    match word {
        "disabled" => SslMode::Disabled,
        "required" => SslMode::Required,
        "verify-ca" => SslMode::VerifyCa,
        "verify-identity" => SslMode::VerifyIdentity,
        _ => SslMode::Preferred,
    }
}

fn hole_proof(word: &str) -> HoleProof {
    match word {
        "lock" => HoleProof::Lock,
        "none" => HoleProof::Nothing,
        _ => HoleProof::Instruments,
    }
}

fn wrong(reason: impl Into<String>) -> StoreError {
    misconfigured(OPERATION, reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_its_parts() {
        let config = MysqlConfig::parse(
            "mysql://re%40lay:s%3Aecret@db.example:3307/app?ssl-mode=verify-identity&ssl-ca=/ca.pem\
             &hole-proof=lock&connect-timeout=250ms",
        )
        .unwrap();
        assert_eq!((config.host.as_str(), config.port), ("db.example", 3307));
        assert_eq!(
            (config.user.as_str(), config.database.as_str()),
            ("re@lay", "app")
        );
        assert_eq!(config.password.as_deref(), Some("s:ecret"));
        assert_eq!(config.ssl_mode, SslMode::VerifyIdentity);
        assert_eq!(config.ssl_ca, Some(PathBuf::from("/ca.pem")));
        assert_eq!(config.hole_proof, HoleProof::Lock);
        assert_eq!(config.connect_timeout, Duration::from_millis(250));
        assert!(!format!("{config:?}").contains("secret"));

        let config = MysqlConfig::parse("mariadb://relay@[::1]/app").unwrap();
        assert_eq!((config.host.as_str(), config.port), ("::1", 3306));
        assert_eq!(
            (config.password, config.ssl_mode),
            (None, SslMode::Preferred)
        );
        assert_eq!(config.hole_proof, HoleProof::Instruments);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (url, word) in [
            ("postgres://h/db", "mysql://"),
            ("mysql://h/db", "user"),
            ("mysql://u@h", "database"),
            ("mysql://u@h/", "database"),
            ("mysql://u@h:0/db", "port"),
            ("mysql://u@h:x/db", "port"),
            ("mysql://u%@h/db", "%25"),
            ("mysql://u@h/db?sslmode=x", "ssl-mode"),
            ("mysql://u@h/db?ssl-mode=verify-full", "verify-identity"),
            ("mysql://u@h/db?hole-proof=age", "instruments"),
        ] {
            let error = MysqlConfig::parse(url).unwrap_err().to_string();
            assert!(error.contains(word), "{url}: {error}");
        }
    }
}
