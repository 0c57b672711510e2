//! The pooler in front of a real server: transactions share its connections.

#![allow(clippy::unwrap_used, clippy::expect_used)] // Clippy's own exception ends at helpers.

use posthaste_testkit::servers::{pgbouncer::PgBouncer, postgres::PostgresServer};
use std::collections::BTreeSet;
use tokio_postgres::NoTls;

#[tokio::test]
async fn clients_share_the_connections_of_the_database() {
    let server = PostgresServer::shared(15);
    let database = server.create_database();
    let pooler = PgBouncer::start(server, &["postgres"]);
    let mut backends = BTreeSet::new();
    let mut clients = Vec::new();
    for _ in 0..10 {
        let url = pooler.url("postgres", database.name());
        let (client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
        tokio::spawn(connection);
        let rows = client
            .simple_query("select pg_backend_pid()")
            .await
            .unwrap();
        let pid = rows.iter().find_map(|row| match row {
            tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
            _ => None,
        });
        backends.insert(pid.unwrap());
        clients.push(client);
    }
    assert!(backends.len() <= 4, "{backends:?}\n{}", pooler.log());
}
