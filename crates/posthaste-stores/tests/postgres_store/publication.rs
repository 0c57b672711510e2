//! A publication of all tables: deletes and updates need a table that says which row is meant.

use posthaste_engine::{AfterFailure, Parking, Retention, Start};

use super::support::*;

#[tokio::test]
async fn a_publication_of_all_tables_lets_everything_go_that_is_past_its_time() {
    let database = fresh().await;
    database.psql("create publication everything for all tables");
    let store = store(&database.url());
    let claimed = open(&store, Start::Oldest).await;
    database
        .psql("select posthaste.emit('t', 'one'); select posthaste.emit('t', 'two', key => 'k')");
    let page = claimed.next(ALL).await.unwrap();
    let parkings: Vec<Parking> = page
        .events
        .iter()
        .map(|event| Parking {
            at: page.cursor_at(event),
            event: event.clone(),
            attempts: 1,
            kind: "invalid",
            reason: "no".to_owned(),
            next: match event.key() {
                Some(_) => AfterFailure::Skip,
                None => AfterFailure::Dead,
            },
        })
        .collect();
    claimed.park(&parkings).await.unwrap();
    claimed.advance(&page.end, &[]).await.unwrap();
    database.psql(
        "update posthaste.parked set parked_at = parked_at - interval '31 days',
             settled_at = settled_at - interval '31 days';
         update posthaste.attempts set at = at - interval '31 days';
         update posthaste.audit set at = at - interval '31 days';
         update posthaste.outbox set inserted_at = inserted_at - interval '31 days'",
    );
    let done = store.housekeep(None).await.unwrap();
    assert_eq!((done.parked, done.attempts), (2, 2));
    assert!(done.audit > 0, "{done:?}");
}

/// A table that is added one day is seen here, whatever is done to it.
#[tokio::test]
async fn every_table_has_a_replica_identity() {
    let database = fresh().await;
    let without = database.psql(
        "select string_agg(c.relname, ', ')
         from pg_class c
         where c.relnamespace = 'posthaste'::regnamespace
             and c.relkind = 'r' and c.relpersistence = 'p'
             and c.relreplident <> 'f'
             and not (c.relreplident = 'd' and exists (
                 select from pg_index i where i.indrelid = c.oid and i.indisprimary))",
    );
    assert_eq!(without, "");
}
