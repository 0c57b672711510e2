//! The part of an address that names servers: `user:password@host:port,host:port/path`.

use std::net::Ipv6Addr;

use posthaste_engine::SinkError;

use super::Address;

/// Servers, our login there, and the path. It has no `Debug`: it may hold a password.
pub(crate) struct Authority {
    /// The user who logs in.
    pub(crate) user: Option<User>,
    /// At least one.
    pub(crate) hosts: Vec<Host>,
    /// The bytes after the first `/`, percent-decoded; none without a `/`.
    pub(crate) path: Option<Vec<u8>>,
}

/// Name and password, percent-decoded.
pub(crate) struct User {
    pub(crate) name: String,
    /// None without a `:`; an empty password is one.
    pub(crate) password: Option<String>,
}

/// One server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Host {
    /// A name, an IPv4 address, or an IPv6 address without its brackets.
    pub(crate) name: String,
    pub(crate) port: Option<u16>,
}

impl Host {
    /// `name:port`, with an IPv6 address in brackets.
    pub(crate) fn with_default_port(&self, default: u16) -> String {
        let (name, port) = (&self.name, self.port.unwrap_or(default));
        if name.contains(':') {
            format!("[{name}]:{port}")
        } else {
            format!("{name}:{port}")
        }
    }
}

impl Address {
    /// The servers that this address names.
    ///
    /// # Errors
    /// [`SinkError::Misconfigured`] without a host, with a host or port that is none, or with a
    /// broken percent escape. The reason repeats neither user nor host: a mistake may have put the
    /// password there.
    pub(crate) fn authority(&self) -> Result<Authority, SinkError> {
        let (authority, path) = match self.path.split_once('/') {
            Some((authority, path)) => (authority, Some(path)),
            None => (self.path.as_str(), None),
        };
        // The last `@`, so that a password with a bare one still works.
        let (user, hosts) = match authority.rsplit_once('@') {
            Some((user, hosts)) => (Some(self.user(user)?), hosts),
            None => (None, authority),
        };
        let hosts = hosts
            .split(',')
            .map(|host| self.host(host))
            .collect::<Result<_, _>>()?;
        // It may be what ends the login, the `/` before it being of the password.
        if path.is_some_and(|path| path.contains('@')) {
            return Err(self.misconfigured(
                "an `@` stands behind the first `/`, where it ends no password; write in user and \
                 password `/` as %2F, and elsewhere `@` as %40"
                    .to_owned(),
            ));
        }
        let path = path.map(|path| self.decode(path)).transpose()?;
        Ok(Authority { user, hosts, path })
    }

    /// The text after the first `/`, with the percent escapes that it has; empty without a `/`. For
    /// an address whose [authority](Self::authority) was read.
    #[cfg(any(feature = "http", feature = "schema-registry"))]
    pub(crate) fn encoded_path(&self) -> &str {
        self.path.split_once('/').map_or("", |(_, path)| path)
    }

    fn user(&self, text: &str) -> Result<User, SinkError> {
        let (name, password) = match text.split_once(':') {
            Some((name, password)) => (name, Some(password)),
            None => (text, None),
        };
        let decode = |text: &str| {
            String::from_utf8(self.decode(text)?)
                .map_err(|_| self.misconfigured("user or password is not UTF-8".to_owned()))
        };
        if name.is_empty() {
            return Err(self.misconfigured("the user before `@` has no name".to_owned()));
        }
        Ok(User {
            name: decode(name)?,
            password: password.map(decode).transpose()?,
        })
    }

    fn host(&self, text: &str) -> Result<Host, SinkError> {
        let (name, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (name, port) = rest
                    .split_once(']')
                    .filter(|(name, _)| name.parse::<Ipv6Addr>().is_ok())
                    .ok_or_else(|| self.wrong_host("brackets hold an IPv6 address: `[::1]`"))?;
                (
                    name,
                    port.strip_prefix(':')
                        .or_else(|| port.is_empty().then_some("")),
                )
            }
            None => match text.split_once(':') {
                Some((name, port)) => (name, Some(port)),
                None => (text, Some("")),
            },
        };
        let port = match port {
            Some("") if !text.ends_with(':') => None,
            Some(port) if port.contains(':') => {
                return Err(self.wrong_host("an IPv6 address stands in brackets: `[::1]:PORT`"));
            }
            port => Some(
                port.and_then(|port| port.parse().ok())
                    .filter(|&port: &u16| port != 0)
                    .ok_or_else(|| self.wrong_host("a port is a number from 1 to 65535"))?,
            ),
        };
        let is_address = name.contains(':');
        let is_name = !name.is_empty()
            && name
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_'));
        if !(is_address || is_name) {
            return Err(self.wrong_host("a host is a name or an IP address"));
        }
        Ok(Host {
            name: name.to_owned(),
            port,
        })
    }

    fn wrong_host(&self, rule: &str) -> SinkError {
        let scheme = self.scheme();
        self.misconfigured(format!(
            "{rule}; write `{scheme}://HOST:PORT` or `{scheme}://USER:PASSWORD@HOST:PORT`, in user \
             and password `/` as %2F, `@` as %40, `:` as %3A, `?` as %3F"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn authority(url: &str) -> Authority {
        match Address::parse(url).unwrap().authority() {
            Ok(authority) => authority,
            Err(error) => panic!("{url}: {error}"),
        }
    }

    #[test]
    fn hosts_and_ports_are_found() {
        for (url, hosts) in [
            ("x://a", &["a:1"][..]),
            ("x://a:2,b,c.example:3", &["a:2", "b:1", "c.example:3"]),
            ("x://[::1],[fe80::2]:5", &["[::1]:1", "[fe80::2]:5"]),
            ("x:127.0.0.1:7/path", &["127.0.0.1:7"]),
        ] {
            let found: Vec<_> = authority(url)
                .hosts
                .iter()
                .map(|host| host.with_default_port(1))
                .collect();
            assert_eq!(found, hosts, "{url}");
        }
    }

    #[test]
    fn escapes_are_decoded_after_the_parts_are_told_apart() {
        let found = authority("x://us%40er:p%3Aa%2Fss%25@host/v%2Fhost/%41");
        let user = found.user.unwrap();
        assert_eq!(user.name, "us@er");
        assert_eq!(user.password.as_deref(), Some("p:a/ss%"));
        assert_eq!(found.path.as_deref(), Some(&b"v/host/A"[..]));
        assert_eq!(found.hosts.len(), 1);
    }

    #[test]
    fn absent_and_empty_are_two_things() {
        let password = |url: &str| authority(url).user.map(|user| user.password);
        assert_eq!(password("x://h"), None);
        assert_eq!(password("x://u@h"), Some(None));
        assert_eq!(password("x://u:@h"), Some(Some(String::new())));
        assert_eq!(authority("x://h").path, None);
        assert_eq!(authority("x://h/").path, Some(Vec::new()));
    }

    #[test]
    fn mistakes_are_refused_and_never_repeated() {
        for (url, fix) in [
            ("x:", "a host is"),
            ("x://u:secret@", "a host is"),
            ("x://a,,b", "a host is"),
            ("x://a:", "a port is"),
            ("x://a:0", "a port is"),
            ("x://a:65536", "a port is"),
            ("x://u:secret", "a port is"),
            ("x://u:secret/x@host", "`/` as %2F"),
            ("x://::1", "in brackets"),
            ("x://[secret]:1", "`[::1]`"),
            ("x://[::1]secret", "a port is"),
            ("x://[::1", "`[::1]`"),
            ("x://:secret@host", "no name"),
            ("x://u:secret%zz@host", "%25"),
            ("x://u:secret%ff@host", "not UTF-8"),
            ("x://sec ret", "a host is"),
        ] {
            let Err(error) = Address::parse(url).unwrap().authority() else {
                panic!("{url} was taken");
            };
            let said = error.to_string();
            assert!(said.contains(fix), "{url}: {said}");
            assert!(!said.contains("secret"), "{url}: {said}");
        }
    }
}
