//! The address of an SQLite store: `sqlite:path` or `sqlite:///absolute/path`.

use std::{path::PathBuf, time::Duration};

use posthaste_engine::{StoreError, parse_duration, shown};

use crate::{
    descriptors::sqlite::{BUSY_TIMEOUT, SQLITE},
    percent,
};

const OPERATION: &str = "read the store's address";

/// An SQLite store's address, parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SqliteConfig {
    /// The database file.
    pub path: PathBuf,
    /// How long a call waits for another process's lock before it answers *unavailable*. Default
    /// 5 s.
    pub busy_timeout: Duration,
}

impl SqliteConfig {
    /// Parses `sqlite:path?busy_timeout=5s`. In the path, `%` begins two hexadecimal digits (so
    /// `%3F` is a question mark).
    ///
    /// # Errors
    /// [`StoreError::Misconfigured`] that names what is wrong.
    pub fn parse(url: &str) -> Result<Self, StoreError> {
        let rest = url
            .strip_prefix("sqlite:")
            .ok_or_else(|| wrong("it must begin with `sqlite:`, as in `sqlite:orders.db`"))?;
        let rest = rest.strip_prefix("//").unwrap_or(rest);
        let (path, options) = match rest.split_once('?') {
            Some((path, options)) => (path, options),
            None => (rest, ""),
        };
        let path = percent::decode(path).ok_or_else(|| {
            wrong(
                "in the path, `%` begins two hexadecimal digits of UTF-8: write a plain `%` as \
                 `%25`",
            )
        })?;
        if path.is_empty() {
            return Err(wrong(
                "the path is missing: write `sqlite:orders.db` or `sqlite:///var/lib/orders.db`",
            ));
        }
        if path == ":memory:" {
            return Err(wrong(
                "`:memory:` is private to one connection: give the path of a file",
            ));
        }
        if path.starts_with("file:") {
            return Err(wrong(
                "SQLite's own addresses (`file:…`) are not read: write `sqlite:orders.db`, and for \
                 a file whose name begins so `sqlite:./file:…`",
            ));
        }
        let mut busy_timeout = BUSY_TIMEOUT.default_value().unwrap_or_default();
        for option in options.split('&').filter(|option| !option.is_empty()) {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            let known = SQLITE.plug_in.option(name).ok_or_else(|| {
                let known = SQLITE.plug_in.option_names();
                wrong(format!(
                    "unknown option `{}`: the options are `{known}`",
                    shown(name)
                ))
            })?;
            known.check(value).map_err(wrong)?;
            busy_timeout = value;
        }
        Ok(Self {
            path: PathBuf::from(path),
            busy_timeout: parse_duration(busy_timeout).unwrap_or_default(),
        })
    }
}

fn wrong(reason: impl Into<String>) -> StoreError {
    StoreError::Misconfigured {
        operation: OPERATION,
        reason: reason.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(url: &str) -> PathBuf {
        SqliteConfig::parse(url).unwrap().path
    }

    #[test]
    fn relative_and_absolute_paths() {
        assert_eq!(path("sqlite:orders.db"), PathBuf::from("orders.db"));
        assert_eq!(
            path("sqlite:/data/orders.db"),
            PathBuf::from("/data/orders.db")
        );
        assert_eq!(
            path("sqlite:///data/orders.db"),
            PathBuf::from("/data/orders.db")
        );
        assert_eq!(
            path("sqlite:my%20orders%3F.db"),
            PathBuf::from("my orders?.db")
        );
    }

    #[test]
    fn options() {
        let config = SqliteConfig::parse("sqlite:orders.db?busy_timeout=250ms").unwrap();
        assert_eq!(config.busy_timeout, Duration::from_millis(250));
        let config = SqliteConfig::parse("sqlite:orders.db").unwrap();
        assert_eq!(config.busy_timeout, Duration::from_secs(5));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (url, word) in [
            ("postgres://h/db", "sqlite:"),
            ("sqlite:", "path is missing"),
            ("sqlite::memory:", "private"),
            ("sqlite:file:a.db", "`sqlite:orders.db`"),
            ("sqlite:a.db?busy_timeout=5", "unit"),
            ("sqlite:a.db?busy_timeout=0s", "an hour"),
            ("sqlite:a.db?busy_timeout=2h", "unit"),
            ("sqlite:a.db?mode=ro", "`mode`"),
            ("sqlite:100%.db", "%25"),
        ] {
            let error = SqliteConfig::parse(url).unwrap_err().to_string();
            assert!(error.contains(word), "{url}: {error}");
        }
    }
}
