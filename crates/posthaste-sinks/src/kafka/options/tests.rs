use super::*;

fn settings(url: &str) -> Result<Settings, String> {
    Address::parse(url)
        .and_then(|address| Settings::from_address(&address))
        .map_err(|error| error.to_string())
}

#[test]
fn an_address_becomes_settings() {
    let url = "kafka://us%40er:p%3Aw@a,[::1]:9093/?sasl=scram-sha-512&tls=true&ca_file=/ca.pem\
               &compression=zstd&linger=5ms&client_id=orders";
    let settings = settings(url).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(settings.target, "kafka://a:9092,[::1]:9093");
    let config = settings.producer();
    for (name, value) in [
        ("bootstrap.servers", "a:9092,[::1]:9093"),
        ("security.protocol", "sasl_ssl"),
        ("sasl.mechanism", "SCRAM-SHA-512"),
        ("sasl.username", "us@er"),
        ("sasl.password", "p:w"),
        ("ssl.ca.location", "/ca.pem"),
        ("compression.type", "zstd"),
        ("linger.ms", "5"),
        ("client.id", "orders"),
        ("batch.size", "1000000"),
    ] {
        assert_eq!(config.get(name), Some(value), "{name}");
    }
}

/// The folder that OpenSSL was built for may not exist on this machine.
#[test]
fn authorities_that_nobody_names_are_the_systems() {
    let locations = ["kafka://h?tls=true", "kafka://h"].map(|url| {
        let settings = settings(url).unwrap_or_else(|error| panic!("{error}"));
        let producer = settings.producer();
        producer
            .get("ssl.ca.location")
            .map(std::path::PathBuf::from)
    });
    let [Some(system), None] = locations else {
        panic!("{locations:?}; install ca-certificates");
    };
    assert!(system.exists(), "{}", system.display());
}

#[test]
fn wrong_addresses_name_the_fix() {
    for (url, fix) in [
        ("kafka:", "HOST:PORT"),
        ("kafka://h/topic", "takes no path"),
        ("kafka://h?compresion=lz4", "did you mean `compression`"),
        (
            "kafka://h?compression=lzma",
            "none, gzip, snappy, lz4, zstd",
        ),
        ("kafka://h?delivery=once", "idempotent, transactional"),
        ("kafka://h?progress_topic=p", "`delivery=transactional`"),
        (
            "kafka://h?delivery=transactional&progress_topic=a/b",
            "Kafka takes letters",
        ),
        ("kafka://h?tls=yes", "true, false"),
        ("kafka://h?ca_file=x", "`tls=true`"),
        ("kafka://h?tls=true&cert_file=x", "needed together"),
        ("kafka://u:secret@h", "`sasl=scram-sha-512`"),
        ("kafka://u:secret@h?sasl=plain", "`tls=true`"),
        ("kafka://u@h?sasl=plain&tls=true", "no password"),
        ("kafka://h?sasl=plain", "needs a user"),
        ("kafka://u:secret@h?sasl=gssapi", "plain, scram-sha-256"),
        ("kafka://h?linger=5", "`5ms`"),
        ("kafka://h?linger=2s", "to 1s"),
    ] {
        let Err(said) = settings(url) else {
            panic!("{url} was taken");
        };
        assert!(said.contains(fix), "{url}: {said}");
        assert!(!said.contains("secret"), "{url}: {said}");
    }
}

#[test]
fn transactions_are_asked_for() {
    for (url, topic) in [
        ("kafka://h", None),
        ("kafka://h?delivery=idempotent", None),
        (
            "kafka://h?delivery=transactional",
            Some("posthaste-progress"),
        ),
        (
            "kafka://h?delivery=transactional&progress_topic=p",
            Some("p"),
        ),
    ] {
        let settings = settings(url).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(settings.progress_topic.as_deref(), topic, "{url}");
    }
}

#[test]
fn the_password_may_travel_unencrypted_when_the_address_says_so() {
    let settings = settings("kafka://u:p@h?sasl=plain&tls=false").unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(
        settings.probe().get("security.protocol"),
        Some("sasl_plaintext")
    );
}
