//! The server that requests go to.

use crate::address::{Address, authority::Host};

/// A server, which speaks TLS or does not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Endpoint {
    pub(crate) is_encrypted: bool,
    pub(crate) host: Host,
}

impl Endpoint {
    /// The server of a URL such as `http://127.0.0.1:9324`; none if it names anything more: a
    /// login, a path or a query.
    pub(crate) fn parse(url: &str) -> Option<Self> {
        let address = Address::parse(url).ok()?;
        let is_encrypted = match address.scheme() {
            "http" => false,
            "https" => true,
            _ => return None,
        };
        if !url.contains("://") || url.contains('?') {
            return None;
        }
        let mut server = address.authority().ok()?;
        let has_no_path = server.path.as_ref().is_none_or(Vec::is_empty);
        let is_server = server.hosts.len() == 1 && server.user.is_none() && has_no_path;
        let host = server.hosts.pop().filter(|_| is_server)?;
        Some(Self { is_encrypted, host })
    }

    /// Its `HOST:PORT`, or `HOST` where the port is the usual one.
    pub(crate) fn authority(&self) -> String {
        let address = self.address();
        match self.host.port {
            Some(_) => address,
            None => {
                let end = address.rfind(':').unwrap_or(address.len());
                address[..end].to_owned()
            }
        }
    }

    /// Its `HOST:PORT`.
    pub(crate) fn address(&self) -> String {
        let default_port = if self.is_encrypted { 443 } else { 80 };
        self.host.with_default_port(default_port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_a_server() {
        for (url, address) in [
            ("http://127.0.0.1:9324", Some("127.0.0.1:9324")),
            (
                "https://vpce-1.sqs.eu-central-1.vpce.amazonaws.com/",
                Some("vpce-1.sqs.eu-central-1.vpce.amazonaws.com:443"),
            ),
            ("http://[::1]:1", Some("[::1]:1")),
            ("http://localhost", Some("localhost:80")),
            ("127.0.0.1:9324", None),
            ("http:localhost", None),
            ("http://", None),
            ("http://me:secret@h", None),
            ("http://h/path", None),
            ("http://h?a=b", None),
            ("ftp://h", None),
        ] {
            let found = Endpoint::parse(url).map(|endpoint| endpoint.address());
            assert_eq!(found.as_deref(), address, "{url}");
        }
    }
}
