//! From an insert to an advance: the main walk of the PostgreSQL store.

use super::support::*;
use posthaste_engine::{Field, Start, Store, StoreError};
use posthaste_testkit::servers::postgres::PostgresServer;

#[tokio::test]
async fn events_come_in_order_once_and_progress_survives_a_new_claim() {
    let database = fresh().await;
    let store = store(&database.url());
    store.check().await.unwrap();
    let relay = register(&store, "one").await;
    let claimed = reopen(&store, relay, Start::Oldest).await;
    database.psql(
        "select posthaste.emit('t', 'e' || n, key => 'k' || n % 3) from generate_series(1, 2500) n",
    );
    let expected: Vec<String> = (1..=2500).map(|n| format!("e{n}")).collect();
    let mut seen = Vec::new();
    let page = claimed.next(pages_of(100)).await.unwrap();
    assert!(!page.caught_up && !page.joinable);
    let middle = page.cursor_at(&page.events[4]);
    seen.extend(payloads_of(&page));
    claimed.advance(&middle, &[]).await.unwrap();

    // In the middle of a difference another claim goes on exactly there.
    let again = reopen(&store, relay, Start::Oldest).await;
    let mut rest = drain(&again, pages_of(100)).await;
    seen.truncate(5);
    seen.append(&mut rest);
    assert_eq!(seen, expected);

    // The former claim is fenced and changes nothing.
    let refused = claimed.advance(&page.end, &[]).await.unwrap_err();
    assert!(matches!(refused, StoreError::Fenced { .. }), "{refused}");
    let last = reopen(&store, relay, Start::Oldest).await;
    assert_eq!(drain(&last, ALL).await, Vec::<String>::new());
}

#[tokio::test]
async fn every_field_arrives_as_it_was_written() {
    let database = fresh().await;
    let store = store(&database.url());
    let claimed = open(&store, Start::Oldest).await;
    database.psql(
        "select posthaste.emit_bytes('topic.a', '\\xff00'::bytea, key => 'k\\x', type => 'T', \
         headers => array['a', '1', 'a', null, 'é', ''], content_type => 'c/t', \
         correlation_id => 'co', causation_id => 'ca', tenant_id => 'te', \
         traceparent => 'tp', tracestate => 'ts', \
         occurred_at => '2001-02-03 04:05:06.789012+00', \
         id => '0190c0de-0000-7000-8000-000000000001');
         select posthaste.emit('t'); select posthaste.emit('t', '')",
    );
    let page = claimed.next(ALL).await.unwrap();
    let event = &page.events[0];
    let texts = [
        Field::Topic,
        Field::Key,
        Field::Type,
        Field::ContentType,
        Field::CorrelationId,
        Field::CausationId,
        Field::TenantId,
        Field::Traceparent,
        Field::Tracestate,
    ]
    .map(|field| event.text(field).unwrap());
    assert_eq!(
        texts,
        ["topic.a", "k\\x", "T", "c/t", "co", "ca", "te", "tp", "ts"]
    );
    assert_eq!(event.payload(), Some(&[0xff, 0][..]));
    assert_eq!(
        event.headers().collect::<Vec<_>>(),
        [("a", Some("1")), ("a", None), ("é", Some(""))]
    );
    assert_eq!(event.occurred_at(), 981_173_106_789_012);
    assert_eq!(
        event.id().to_string(),
        "0190c0de-0000-7000-8000-000000000001"
    );
    let slot = database.psql("select slot from posthaste.outbox order by seq limit 1");
    assert_eq!(event.slot().to_string(), slot);
    let inserted = database.psql(
        "select (extract(epoch from inserted_at) * 1000000)::bigint \
         from posthaste.outbox order by seq limit 1",
    );
    assert_eq!(event.inserted_at().to_string(), inserted);
    assert_eq!(page.events[1].payload(), None);
    assert_eq!(page.events[1].headers().count(), 0);
    assert_eq!(page.events[2].payload(), Some(&b""[..]));
}

#[tokio::test]
async fn floors_reach_the_sequence_and_then_nothing_is_written() {
    // A server of its own: an open transaction in any database of a server holds the floors.
    let server = PostgresServer::builder().setting("fsync", "off").start();
    let database = server.create_database();
    initialise(&database.url()).await;
    let store = store(&database.url());
    let claimed = open(&store, Start::Oldest).await;
    let stored = || database.psql("select floor, floor_min from posthaste.cursors");
    database.psql("select posthaste.emit('t', 'a'); select posthaste.emit('t', 'b')");
    let mut advances = 0;
    for _ in 0..10 {
        let page = claimed.next(ALL).await.unwrap();
        assert!(page.caught_up && page.joinable);
        if !page.events.is_empty() || page.store_end {
            claimed.advance(&page.end, &[]).await.unwrap();
            advances += 1;
        }
    }
    assert_eq!(stored(), "2|2");
    assert!(advances <= 3, "{advances} advances");

    // An open transaction holds the least floor, and asks for no advances meanwhile.
    let open = writer(&database.url()).await;
    open.batch_execute("begin; select posthaste.emit('t', 'late')")
        .await
        .unwrap();
    database.psql("select posthaste.emit('t', 'c')");
    for _ in 0..5 {
        let page = claimed.next(ALL).await.unwrap();
        if page.store_end {
            claimed.advance(&page.end, &[]).await.unwrap();
        }
    }
    assert_eq!(stored(), "4|2");
    assert!(!claimed.next(ALL).await.unwrap().store_end);
    open.batch_execute("commit").await.unwrap();
    let page = claimed.next(ALL).await.unwrap();
    assert_eq!(payloads_of(&page), ["late"]);
    assert!(page.store_end);
    claimed.advance(&page.end, &[]).await.unwrap();
    assert_eq!(stored(), "4|4");
}
