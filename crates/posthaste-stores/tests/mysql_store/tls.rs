//! How far the server's certificate is believed.

use posthaste_engine::{Store, StoreError};
use posthaste_stores::mysql::MysqlStore;
use posthaste_testkit::{
    servers::mysql::{MysqlServer, Version},
    tls::TestCa,
};
use tokio::task::block_in_place;

use super::support::Outbox;

super::on_all! {
    a_server_without_tls
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_on_mariadb_10() {
    certificates(Version::MariaDb10).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_on_mariadb_11() {
    certificates(Version::MariaDb11).await;
}

async fn checked(url: &str) -> Result<(), StoreError> {
    MysqlStore::new(url)?.check().await
}

/// The account is let in over TLS alone. MySQL 8.0.15 has no ciphers that rustls takes.
async fn certificates(version: Version) {
    let (ca, stranger) = (TestCa::new(), TestCa::new());
    let builder = MysqlServer::builder(version).shows_locks();
    let builder = builder.certificate(ca.server_certificate(&["localhost"]));
    let server = block_in_place(|| builder.start());
    let outbox = Outbox::on(&server).await;
    block_in_place(|| {
        server.sql(
            "",
            "create user tls@'127.0.0.1' require ssl; grant all on *.* to tls@'127.0.0.1'",
        )
    });
    let (port, name) = (server.port(), outbox.database.name());
    let url = |host: &str, options: &str| format!("mysql://tls@{host}:{port}/{name}?{options}");
    let trusting = |ca: &TestCa| format!("ssl-ca={}", ca.certificate_file().display());
    let (ours, theirs) = (trusting(&ca), trusting(&stranger));
    for (host, options) in [
        ("localhost", format!("ssl-mode=verify-identity&{ours}")),
        ("localhost", format!("ssl-mode=verify-ca&{ours}")),
        ("127.0.0.1", format!("ssl-mode=required&{ours}")),
        ("127.0.0.1", "ssl-mode=required".to_owned()),
        ("127.0.0.1", "ssl-mode=preferred".to_owned()),
    ] {
        let answer = checked(&url(host, &options)).await;
        answer.unwrap_or_else(|error| panic!("{options}: {error}"));
    }
    let wrong_name = "not valid for name";
    for (host, options, words) in [
        ("127.0.0.1", format!("verify-identity&{ours}"), wrong_name),
        ("127.0.0.1", format!("verify-ca&{ours}"), wrong_name),
        (
            "localhost",
            format!("verify-identity&{theirs}"),
            "check `ssl-ca`",
        ),
        (
            "localhost",
            "verify-identity&ssl-ca=/none".to_owned(),
            "`ssl-ca=/none` cannot be read",
        ),
        ("127.0.0.1", "disabled".to_owned(), "Access denied"),
    ] {
        let url = url(host, &format!("ssl-mode={options}"));
        let said = checked(&url).await.unwrap_err();
        assert!(!said.is_retryable(), "{options}: {said}");
        let said = said.to_string();
        assert!(said.contains(words), "{options}: {said}");
    }
}

async fn a_server_without_tls(version: Version) {
    let builder = MysqlServer::builder(version).shows_locks();
    let server = block_in_place(|| builder.setting("ssl", "OFF").start());
    let outbox = Outbox::on(&server).await;
    let url = |options: &str| format!("{}?{options}", outbox.database.url());
    checked(&url("ssl-mode=preferred")).await.unwrap();
    let said = checked(&url("ssl-mode=required")).await.unwrap_err();
    assert!(!said.is_retryable(), "{said}");
    assert!(said.to_string().contains("TLS"), "{said}");
}
