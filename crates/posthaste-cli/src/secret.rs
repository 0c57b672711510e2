//! Addresses that may hold a password.

use std::fmt;

use secrecy::{ExposeSecret, SecretString};

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

    /// What stands before the first colon, in lower case.
    pub(crate) fn scheme(&self) -> Option<String> {
        self.expose()
            .split_once(':')
            .map(|(scheme, _)| scheme.to_ascii_lowercase())
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
        let (address, query) = match url.split_once('?') {
            Some((address, query)) => (address, Some(query)),
            None => (url, None),
        };
        match mask_user(address) {
            Some((before, after)) => write!(f, "{before}***{after}")?,
            None => f.write_str(address)?,
        }
        for (number, pair) in query.into_iter().flat_map(|q| q.split('&')).enumerate() {
            f.write_str(if number == 0 { "?" } else { "&" })?;
            match pair.split_once('=') {
                Some((name, value)) if is_secret(name) && !value.is_empty() => {
                    write!(f, "{name}=***")?;
                }
                _ => f.write_str(pair)?,
            }
        }
        Ok(())
    }
}

/// Splits `scheme://user:password@host` around the password.
fn mask_user(address: &str) -> Option<(&str, &str)> {
    let authority = address.find("://")? + 3;
    // The last `@`: an unescaped one inside a password must not let its end be seen.
    let at = authority + address.get(authority..)?.rfind('@')?;
    let colon = authority + address.get(authority..at)?.find(':')?;
    (colon + 1 < at).then(|| (&address[..=colon], &address[at..]))
}

/// Options that name a file, which is no secret.
const PATHS: [&str; 2] = ["sslkey", "key_file"];

fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ["password", "secret", "token", "key"]
        .iter()
        .any(|word| name.contains(word))
        && !PATHS.contains(&name.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_masked_and_nothing_else() {
        for (url, shown) in [
            (
                "postgres://app:s3cret@db:5432/shop",
                "postgres://app:***@db:5432/shop",
            ),
            (
                "postgres://app:a@b:c@db/shop?x=1",
                "postgres://app:***@db/shop?x=1",
            ),
            (
                "postgres://db/shop?user=u&password=pw&x=1",
                "postgres://db/shop?user=u&password=***&x=1",
            ),
            (
                "postgres://app@db,db2/shop?sslmode=require",
                "postgres://app@db,db2/shop?sslmode=require",
            ),
            (
                "kafka://app:s3%40cret@one:9092,two:9092?sasl=plain&key_file=/etc/key.pem",
                "kafka://app:***@one:9092,two:9092?sasl=plain&key_file=/etc/key.pem",
            ),
            ("sqlite:shop.db", "sqlite:shop.db"),
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
