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
    certificates
    a_server_without_tls
}

async fn checked(url: &str) -> Result<(), StoreError> {
    MysqlStore::new(url)?.check().await
}

/// The account is let in over TLS alone. MySQL 8.0.15 shows the certificate that it has made itself,
/// since it cannot use one of the test's kind.
async fn certificates(version: Version) {
    let (ca, stranger) = (TestCa::new(), TestCa::new());
    let mut builder = MysqlServer::builder(version).shows_locks();
    if version.is_mariadb() {
        builder = builder.certificate(ca.server_certificate(&["localhost"]));
    }
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
    let mut believed = vec![
        ("127.0.0.1", "ssl-mode=required".to_owned()),
        ("127.0.0.1", "ssl-mode=preferred".to_owned()),
    ];
    let mut refused = vec![
        (
            "localhost",
            format!("ssl-mode=verify-identity&{theirs}"),
            "check `ssl-ca`",
        ),
        (
            "localhost",
            "ssl-mode=verify-identity&ssl-ca=/none".to_owned(),
            "`ssl-ca=/none` cannot be read",
        ),
        ("127.0.0.1", "ssl-mode=disabled".to_owned(), "Access denied"),
    ];
    if version.is_mariadb() {
        believed.extend([
            ("localhost", format!("ssl-mode=verify-identity&{ours}")),
            ("localhost", format!("ssl-mode=verify-ca&{ours}")),
            ("127.0.0.1", format!("ssl-mode=required&{ours}")),
        ]);
        refused.extend([
            (
                "127.0.0.1",
                format!("ssl-mode=verify-identity&{ours}"),
                "not valid for name",
            ),
            (
                "127.0.0.1",
                format!("ssl-mode=verify-ca&{ours}"),
                "not valid for name",
            ),
        ]);
    }
    for (host, options) in believed {
        let answer = checked(&url(host, &options)).await;
        answer.unwrap_or_else(|error| panic!("{options}: {error}"));
    }
    for (host, options, words) in refused {
        let said = checked(&url(host, &options)).await.unwrap_err();
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
