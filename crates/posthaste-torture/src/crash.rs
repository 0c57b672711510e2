//! PostgreSQL stopped like a crash, so that it issues again the transaction numbers and `seq` that
//! only aborted transactions had used.

use posthaste_testkit::servers::postgres::PostgresServer;

use crate::{
    database::{Database, Plan},
    postgres::Postgres,
};

/// Aborts transactions, crashes the server at once, starts it again, and looks whether their
/// numbers are free again.
pub async fn crash_server<T>(
    server: &PostgresServer,
    postgres: &Postgres,
    again: &mut u32,
    meanwhile: impl FnOnce() -> T,
) -> T {
    let client = postgres.client().await.unwrap();
    let mut writer = postgres.writer().await.unwrap();
    for _ in 0..5 {
        // More draws than PostgreSQL logs ahead.
        let plan = Plan {
            rolls_back: true,
            ..Plan::of("aborted", 100)
        };
        writer.transact(&plan).await.unwrap();
        client
            .batch_execute("begin; select pg_current_xact_id(); rollback")
            .await
            .unwrap();
    }
    let next = "select pg_snapshot_xmax(pg_current_snapshot())::text::bigint";
    let before: i64 = client.query_one(next, &[]).await.unwrap().get(0);
    server.crash();
    let outcome = meanwhile();
    server.start_again();
    *again += u32::from(postgres.number(next) < u64::try_from(before).unwrap());
    outcome
}
