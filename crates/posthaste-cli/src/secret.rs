//! Addresses that may hold a password.

use std::{fmt, io, ops::Range};

use posthaste_engine::{AddressForm, is_plain_name};
use secrecy::{ExposeSecret, SecretString};

use crate::plug_ins;

/// A URL of a store or a sink. Printing it, in any way, masks what must not be seen; there is no
/// serialisation of it.
#[derive(Clone)]
pub(crate) struct SecretUrl(SecretString);

impl SecretUrl {
    pub(crate) fn new(url: impl Into<String>) -> Self {
        Self(SecretString::from(url.into()))
    }

    /// The whole URL, for the driver alone.
    pub(crate) fn expose(&self) -> &str {
        self.0.expose_secret()
    }

    /// The text before the first colon, in lower case.
    pub(crate) fn scheme(&self) -> Option<String> {
        self.expose()
            .split_once(':')
            .map(|(scheme, _)| scheme.to_ascii_lowercase())
    }

    /// The address that a destination keeps: masked, and a file's the same from every working
    /// directory. The address is one that its sink has accepted: a login stands before the first
    /// `?`, and an `@` behind that is no end of one.
    pub(crate) fn target(&self) -> io::Result<String> {
        let url = self.expose();
        let (scheme, path) = url.split_once(':').unwrap_or((url, ""));
        if plug_ins::address_form(scheme) == Some(AddressForm::File) {
            let path = std::path::absolute(path.strip_prefix("//").unwrap_or(path))?;
            return Ok(format!("{scheme}:{}", path.display()));
        }
        let before_options = &url[..url.find('?').unwrap_or(url.len())];
        Ok(masked(url, login(before_options)))
    }

    /// Whether there is anything to mask.
    pub(crate) fn holds_a_password(&self) -> bool {
        self.to_string() != self.expose()
    }
}

impl std::str::FromStr for SecretUrl {
    type Err = std::convert::Infallible;

    fn from_str(url: &str) -> Result<Self, Self::Err> {
        Ok(Self::new(url))
    }
}

impl fmt::Debug for SecretUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for SecretUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let url = self.expose();
        f.write_str(&masked(url, login(url)))
    }
}

/// The URL without its login's secret and without those of its options.
fn masked(url: &str, login: Option<Range<usize>>) -> String {
    let (mut text, mut shown) = (String::new(), 0);
    let login_end = login.as_ref().map_or(0, |login| login.end);
    let mut secrets: Vec<Range<usize>> = login.into_iter().chain(options(url, login_end)).collect();
    secrets.sort_by_key(|secret| secret.start);
    for secret in secrets {
        if secret.start >= shown {
            text.push_str(&url[shown..secret.start]);
            text.push_str("***");
        }
        shown = shown.max(secret.end);
    }
    text.push_str(&url[shown..]);
    text
}

/// Where the password of `scheme://user:password@host` stands, or the token of
/// `scheme://token@host`, with `//` or without as sinks take it. Its end is the last `@` there is,
/// so that none of one that was written without its escapes is seen. Without any `@`, the text that
/// stands where a port does, and is no number.
fn login(url: &str) -> Option<Range<usize>> {
    // The scheme may stand in a line of a configuration file.
    let mut colons = url.match_indices(':').map(|(at, _)| at);
    let first = colons.clone().next()?;
    let has_slashes = |colon: usize| url[colon..].starts_with("://");
    let form = |colon: usize| plug_ins::address_form(&url[..colon]);
    let begins = colons.find(|&colon| has_slashes(colon) || form(colon).is_some());
    let colon = begins.unwrap_or(first);
    let (slashes, form) = (has_slashes(colon), form(colon));
    if form == Some(AddressForm::File) {
        return None;
    }
    let start = colon + if slashes { "://".len() } else { 1 };
    let Some(end) = url[start..].rfind('@').map(|end| start + end) else {
        // The name of a resource of AWS has colons, and no password.
        let is_arn = url[start..].starts_with("arn:aws");
        let names_servers = (slashes || form.is_some()) && !is_arn;
        return names_servers.then(|| after_colon(url, start)).flatten();
    };
    let login = &url[start..end];
    let secret = match login.find(':') {
        Some(colon) => start + colon + 1..end,
        None if form == Some(AddressForm::ServersOrToken) => start..end,
        // It may have been encoded as a whole.
        None => start + login.to_ascii_uppercase().find("%3A")? + "%3A".len()..end,
    };
    (!secret.is_empty()).then_some(secret)
}

fn after_colon(url: &str, start: usize) -> Option<Range<usize>> {
    let end = url[start..].find(['/', '?', '"', '\'', ' ']);
    let mut from = start;
    for host in url[start..end.map_or(url.len(), |end| start + end)].split(',') {
        // An IPv6 address has colons of its own.
        let name = match host.starts_with('[') {
            true => host.find(']').unwrap_or(0),
            false => 0,
        };
        let port = host[name..].find(':').map(|at| name + at + 1);
        if let Some(port) = port.filter(|&port| !host[port..].chars().all(|c| c.is_ascii_digit())) {
            return Some(from + port..url.len());
        }
        from += host.len() + 1;
    }
    None
}

/// Where the options stand that are not to be shown: the values of secret ones, and all that are
/// none of their plug-in's. Those may be anything, such as the rest of a password.
fn options(url: &str, login_end: usize) -> impl Iterator<Item = Range<usize>> {
    let scheme = url.find(':').map_or("", |colon| &url[..colon]);
    let plug_in = plug_ins::plug_in(scheme);
    let start = url.find('?').map_or(url.len(), |at| at + 1);
    let pairs = url[start..].split('&').scan(start, |at, pair| {
        let from = *at;
        *at += pair.len() + 1;
        Some((from, pair))
    });
    let is_known = move |name| plug_in.is_some_and(|plug_in| plug_in.option(name).is_some());
    let secrets = pairs.filter_map(move |(from, pair)| {
        let end = from + pair.len();
        match pair.split_once('=') {
            Some((name, _)) if is_known(name) && !names_a_secret(name) => None,
            Some((name, value)) if is_plain_name(name) => Some(end - value.len()..end),
            // The end of a login with a bare `?`, and the host behind it.
            None if from < login_end => None,
            _ => Some(from..end),
        }
    });
    secrets.filter(|secret| !secret.is_empty())
}

/// Whether an option of ours holds a secret itself, and not the name of its file.
fn names_a_secret(name: &str) -> bool {
    ["password", "secret"]
        .iter()
        .any(|word| name.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_the_same_from_every_working_directory() {
        let here = std::env::current_dir().unwrap();
        let target = |url: &str| SecretUrl::new(url).target().unwrap();
        let file = format!("file:{}/out.jsonl?mode=600", here.display());
        for same in ["file:out.jsonl?mode=600", "file://out.jsonl?mode=600"] {
            assert_eq!(target(same), file);
        }
        assert_eq!(target("file:///srv/x"), "file:/srv/x");
        for (url, kept) in [
            ("stdout:", "stdout:"),
            ("kafka:one:9092", "kafka:one:9092"),
            ("nats://one/?subject=a.@x", "nats://one/?subject=a.@x"),
            (
                "amqp://u:p@one/v?exchange=b@x",
                "amqp://u:***@one/v?exchange=b@x",
            ),
        ] {
            assert_eq!(target(url), kept);
        }
    }

    #[test]
    fn passwords_are_masked_and_nothing_else() {
        for (url, shown) in [
            (
                "https://u:p@h/in?secret=whsec_a,whsec_b&proxy_password=a:b&requests=3",
                "https://u:***@h/in?secret=***&proxy_password=***&requests=3",
            ),
            (
                "http://h/in?secret_headers=a: b&secret_query=x%3D1&ca_file=/secret",
                "http://h/in?secret_headers=***&secret_query=***&ca_file=/secret",
            ),
            (
                "postgres://app:s3cret@db:5432/shop",
                "postgres://app:***@db:5432/shop",
            ),
            (
                "postgres://app:a@b:c@db/shop?port=1",
                "postgres://app:***@db/shop?port=1",
            ),
            (
                "postgres://db/shop?user=u&password=pw&port=1",
                "postgres://db/shop?user=u&password=***&port=1",
            ),
            (
                "postgres://app@db,db2/shop?sslmode=require",
                "postgres://app@db,db2/shop?sslmode=require",
            ),
            (
                "kafka://app:s3%40cret@one:9092,two:9092?sasl=plain&key_file=/etc/key.pem",
                "kafka://app:***@one:9092,two:9092?sasl=plain&key_file=/etc/key.pem",
            ),
            ("amqp://u%3As3cret@one/v", "amqp://u%3A***@one/v"),
            // An option that the plug-in does not have.
            (
                "kafka://one?pwd=a&sasl_pass=b&c&tls=true&%40=1",
                "kafka://one?pwd=***&sasl_pass=***&***&tls=true&***",
            ),
            ("kafka://one?sasl_password%3Dx", "kafka://one?***"),
            ("kafka://one?tls%3Dx=1", "kafka://one?***"),
            ("jdbc:pg://one?user=u", "jdbc:pg://one?user=***"),
            // Without their escapes, or their end.
            ("postgres://app:a?x@db/shop", "postgres://app:***@db/shop"),
            ("postgres://app:a?token=x@db", "postgres://app:***"),
            ("postgres://db:1/d?password=a@b", "postgres://db:***"),
            ("postgres://app:s3cret", "postgres://app:***"),
            ("amqp://one:1,app:s3cret,b:2/v", "amqp://one:1,app:***"),
            ("kafka://one:9092,[::1]:9092", "kafka://one:9092,[::1]:9092"),
            // Without `//`, and in a line of a file.
            ("amqp:app:s3cret@one:1/v", "amqp:app:***@one:1/v"),
            (
                "kafka:app:s3:c@ret@one:1,two:2",
                "kafka:app:***@one:1,two:2",
            ),
            ("kafka:one:9092,two:9092", "kafka:one:9092,two:9092"),
            ("url = \"amqp:app:s3cret@one", "url = \"amqp:app:***@one"),
            ("amqp:app:s3cret", "amqp:app:***"),
            ("amqp:app:s3c://ret@one", "amqp:app:***@one"),
            ("nats://t0ken@one:4222,two", "nats://***@one:4222,two"),
            ("nats:t0ken@one/?stream=s", "nats:***@one/?stream=s"),
            ("nats://app:s3cret@one", "nats://app:***@one"),
            ("nats://one:4222,two", "nats://one:4222,two"),
            (
                "sns://arn:aws:sns:eu-central-1:123456789012:a?region=b&secret_access_key=c/d+e",
                "sns://arn:aws:sns:eu-central-1:123456789012:a?region=b&secret_access_key=***",
            ),
            ("sqs://{topic}.fifo?region=b", "sqs://{topic}.fifo?region=b"),
            ("sqlite:shop.db", "sqlite:shop.db"),
            ("sqlite:/srv/a:b@c.db", "sqlite:/srv/a:b@c.db"),
            ("file:///srv/a:b@c", "file:///srv/a:b@c"),
            (
                "file:///tmp/x?max_event_bytes=3",
                "file:///tmp/x?max_event_bytes=3",
            ),
        ] {
            let secret = SecretUrl::new(url);
            assert_eq!(secret.to_string(), shown);
            assert_eq!(format!("{secret:?}"), shown);
            assert_eq!(secret.holds_a_password(), url != shown);
            assert_eq!(secret.expose(), url);
        }
    }
}
