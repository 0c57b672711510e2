//! Connection URLs of one server, for any user and database.

/// A server's URL, taken apart just enough to exchange user and database.
#[derive(Debug, Clone)]
pub(super) struct Address {
    /// `user` or `user:password` of a superuser.
    admin: String,
    host_and_port: String,
    /// With its question mark, or empty.
    query: String,
}

impl Address {
    /// A server of the kit: it trusts everyone on loopback.
    pub(super) fn local(port: u16) -> Self {
        Self {
            admin: "postgres".to_owned(),
            host_and_port: format!("127.0.0.1:{port}"),
            query: String::new(),
        }
    }

    /// A running server's URL; it must name a user, and its database does not matter.
    pub(super) fn parse(url: &str) -> Self {
        Self::try_parse(url).unwrap_or_else(|| {
            panic!("POSTHASTE_TEST_POSTGRES_URL must look like postgres://user:password@host:5432/")
        })
    }

    fn try_parse(url: &str) -> Option<Self> {
        let rest = url
            .strip_prefix("postgres://")
            .or_else(|| url.strip_prefix("postgresql://"))?;
        let (rest, query) = match rest.split_once('?') {
            Some((rest, query)) => (rest, format!("?{query}")),
            None => (rest, String::new()),
        };
        let authority = rest.split('/').next()?;
        let (admin, host) = authority.rsplit_once('@')?;
        let with_port = host
            .rsplit_once(':')
            .is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let host_and_port = if with_port {
            host.to_owned()
        } else {
            format!("{host}:5432")
        };
        Some(Self {
            admin: admin.to_owned(),
            host_and_port,
            query,
        })
    }

    pub(super) fn port(&self) -> u16 {
        let (_, port) = self.host_and_port.rsplit_once(':').expect("a port");
        port.parse().expect("a port number")
    }

    /// The URL for a user, by default the superuser, and a database.
    pub(super) fn url(&self, user: Option<&str>, database: &str) -> String {
        let Self {
            admin,
            host_and_port,
            query,
        } = self;
        format!(
            "postgres://{}@{host_and_port}/{database}{query}",
            user.unwrap_or(admin)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::Address;

    #[test]
    fn user_and_database_are_exchanged_and_the_rest_is_kept() {
        let given = Address::parse("postgresql://me:p%40ss@db.example/one?sslmode=require");
        assert_eq!(
            given.url(None, "two"),
            "postgres://me:p%40ss@db.example:5432/two?sslmode=require"
        );
        assert_eq!(
            given.url(Some("app"), "two"),
            "postgres://app@db.example:5432/two?sslmode=require"
        );
        assert_eq!(
            Address::local(5999).url(None, "x"),
            "postgres://postgres@127.0.0.1:5999/x"
        );
        assert_eq!(Address::local(5999).port(), 5999);
    }
}
