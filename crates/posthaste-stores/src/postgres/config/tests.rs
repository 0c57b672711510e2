use super::*;

fn tcp(names: &[&str]) -> Vec<Host> {
    names.iter().map(|n| Host::Tcp((*n).to_owned())).collect()
}

#[test]
fn a_libpq_url_with_several_hosts_is_understood() {
    let config = PostgresConfig::parse(
        "postgresql://me:p%40ss@a:5433,b,[::1]:6000/shop?sslmode=verify-full&\
         sslrootcert=/etc/ca.pem&connect_timeout=3",
    )
    .unwrap();
    assert_eq!(config.driver.get_hosts(), tcp(&["a", "b", "::1"]));
    assert_eq!(config.driver.get_ports(), [5433, 5432, 6000]);
    assert_eq!(config.driver.get_password(), Some(&b"p@ss"[..]));
    assert_eq!(config.driver.get_dbname(), Some("shop"));
    assert_eq!(config.ssl_mode, SslMode::VerifyFull);
    assert_eq!(config.ssl_root_cert, Some("/etc/ca.pem".into()));
    assert_eq!(
        config.driver.get_target_session_attrs(),
        TargetSessionAttrs::ReadWrite
    );
}

#[test]
fn defaults_are_those_of_libpq() {
    let config = PostgresConfig::parse("postgres://me@/shop").unwrap();
    assert_eq!(config.driver.get_hosts(), tcp(&["localhost"]));
    assert_eq!(config.ssl_mode, SslMode::Prefer);
    assert_eq!(
        config.driver.get_target_session_attrs(),
        TargetSessionAttrs::Any
    );
    let socket = PostgresConfig::parse("postgres://me@/shop?host=/run/postgresql").unwrap();
    assert_eq!(
        socket.driver.get_hosts(),
        [Host::Unix("/run/postgresql".into())]
    );
}

#[test]
fn require_with_authorities_verifies_them() {
    let url = "postgres://me@h/d?sslmode=require&sslrootcert=ca.pem";
    assert_eq!(
        PostgresConfig::parse(url).unwrap().ssl_mode,
        SslMode::VerifyCa
    );
}

#[test]
fn errors_name_the_option_and_the_nearest_valid_one_and_never_the_password() {
    for (url, part) in [
        (
            "postgres://me:geheim@h/d?sslmod=require",
            "did you mean `sslmode`",
        ),
        ("postgres://me:geheim@h/d?sslmode=verify", "verify-full"),
        ("postgres://me:geheim@h/d?sslmode", "no value"),
        ("postgres://me:geheim@h:99999/d", "not a port"),
        ("postgres://me:geheim%zz@h/d", "the password is not valid"),
        ("mysql://me:geheim@h/d", "postgres://"),
        ("postgres://h/d", "no user"),
    ] {
        let error = PostgresConfig::parse(url).unwrap_err();
        assert!(matches!(error, StoreError::Misconfigured { .. }));
        let text = error.to_string();
        assert!(text.contains(part), "{text}");
        assert!(!text.contains("geheim"), "{text}");
    }
    let config = PostgresConfig::parse("postgres://me:geheim@h/d").unwrap();
    assert!(!format!("{config:?}").contains("geheim"));
}

#[test]
fn a_password_without_its_escapes_or_its_end_is_not_repeated() {
    for (url, part) in [
        ("postgres://me:geheim", "not a port"),
        ("postgres://me:geheim/d", "not a port"),
        ("postgres://[geheim", "closing bracket"),
        ("postgres://[::1]geheim", "`:PORT`"),
        ("postgres://me:a/geheim@h/d", "%2F"),
        ("postgres://me:1/geheim@h/d", "%2F"),
        ("postgres://me:a?geheim@h/d", "%3F"),
        ("postgres://me:1?sslmode=geheim@h/d", "%3F"),
        ("postgres://h/d?user=me&password=a&geheim", "%26"),
        ("postgres://h/d?user=me&password=a&geheim=1", "%26"),
        ("postgres://h/d?passwordgeheim", "`password`"),
        ("postgres://h/d?password%3Dgeheim", "`password`"),
        ("postgres://h/d?password%3Dgeheim=1", "`password`"),
        ("postgres://me@h/d?sslmode=%40geheim", "verify-full"),
        ("postgres://me@h/d?service=me%3Ageheim%40h", "no service"),
    ] {
        let text = PostgresConfig::parse(url).unwrap_err().to_string();
        assert!(text.contains(part), "{url}: {text}");
        assert!(!text.contains("geheim"), "{url}: {text}");
    }
}

#[test]
fn a_login_that_was_encoded_as_a_whole_is_not_shown() {
    for url in [
        "postgres://me%3Ageheim@h/d",
        "postgres://me@h/d%3Fpassword%3Dgeheim",
    ] {
        let place = PostgresConfig::parse(url).unwrap().place();
        assert!(!place.contains("geheim"), "{place}");
        assert!(place.contains("server h port 5432"), "{place}");
    }
}

#[test]
fn a_sign_is_no_hexadecimal_digit() {
    assert!(PostgresConfig::parse("postgres://me@h/%+f").is_err());
}
