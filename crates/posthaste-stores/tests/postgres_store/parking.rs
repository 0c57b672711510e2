//! Parking, markers, side read and join on PostgreSQL.

use std::{sync::Arc, time::Duration};

use super::support::*;
use posthaste_engine::{
    Admin, AfterFailure, ClaimRequest, Claimed, Cursor, DeadAction, DestinationState, Ownership,
    ParkedFilter, ParkedState, Parking, Settlement, SideRead, Start, StoreError,
};
use posthaste_testkit::servers::postgres::Database;

fn emit(database: &Database, key: &str, payload: &str) {
    database.psql(&format!(
        "select posthaste.emit('t', '{payload}', key => '{key}')"
    ));
}

/// Parks events of as many keys, dead.
fn park_dead(database: &Database, events: u32) {
    database.psql(&format!(
        "insert into posthaste.parked (destination_id, state, attempts, kind, reason, seq, event_id,
             slot, topic, key, headers, occurred_at, inserted_at)
         select d.id, 'dead', 6, 'other', 'by hand', n, gen_random_uuid(),
             0, 't', 'k' || n, '{{}}', now(), now()
         from posthaste.destinations d, generate_series(1, {events}) n"
    ));
}

/// Reads the key up to `until`, moving the marker along; answers the payloads.
async fn side_drain(side: &mut Box<dyn SideRead>, until: &Cursor) -> Vec<String> {
    let mut seen = Vec::new();
    loop {
        let page = side.next(pages_of(2), until).await.unwrap();
        if page.events.is_empty() && page.caught_up {
            return seen;
        }
        seen.extend(payloads_of(&page));
        if !page.events.is_empty() {
            side.advance(&page.end, &[]).await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_parked_event_blocks_its_key_until_its_followers_were_read_and_joined() {
    let database = fresh().await;
    let store = store(&database.url());
    let relay = register(&store, "one").await;
    let claimed = reopen(&store, relay, Start::Oldest).await;
    for n in 0..6 {
        emit(&database, "bad", &format!("bad{n}"));
        emit(&database, "good", &format!("good{n}"));
    }
    let page = claimed.next(ALL).await.unwrap();
    claimed.park(&[parking(&page, 0, AT_ONCE)]).await.unwrap();
    claimed.advance(&page.end, &[]).await.unwrap();
    let marker = &claimed.markers(None, 10).await.unwrap()[0];
    assert_eq!((marker.key.as_str(), marker.released), ("bad", false));

    // Another life of the relay finds it all again.
    let claimed = reopen(&store, relay, Start::Oldest).await;
    let due = claimed.due(10).await.unwrap();
    assert!(due.released.is_empty());
    let copy = &due.events[0];
    assert_eq!(copy.attempts, 1);
    assert_eq!(copy.event.payload(), page.events[0].payload());
    assert_eq!(copy.event.id(), page.events[0].id());
    claimed
        .settle(copy.id, &Settlement::Delivered)
        .await
        .unwrap();
    let due = claimed.due(10).await.unwrap();
    assert!(due.events.is_empty());
    assert_eq!(due.released, ["bad"]);
    assert!(claimed.markers(None, 10).await.unwrap()[0].released);

    let mut side = claimed.side_read(&["bad".into()]).await.unwrap();
    assert_eq!(drain(&claimed, ALL).await, ["bad5", "good5"]);
    emit(&database, "bad", "bad6");
    let standing = claimed.next(ALL).await.unwrap();
    assert_eq!(payloads_of(&standing), ["bad6"]);
    assert_eq!(
        side_drain(&mut side, &standing.end).await,
        ["bad1", "bad2", "bad3", "bad4", "bad5", "bad6"]
    );
    // A later target goes on behind the earlier one.
    emit(&database, "bad", "bad7");
    claimed.advance(&standing.end, &[]).await.unwrap();
    let standing = claimed.next(ALL).await.unwrap();
    assert_eq!(side_drain(&mut side, &standing.end).await, ["bad7"]);
    claimed.advance(&standing.end, &[]).await.unwrap();
    claimed.join(&["bad".into()], &standing.end).await.unwrap();
    assert!(claimed.markers(None, 10).await.unwrap().is_empty());
    assert_eq!(
        database.psql("select action from posthaste.audit order by id"),
        "destination created\npark\ndelivered\njoin"
    );
    assert_eq!(
        database.psql("select attempt, kind from posthaste.attempts order by at"),
        "1|other\n2|accepted"
    );
}

#[tokio::test]
async fn a_marker_inside_a_difference_reads_its_rest_first_also_after_a_restart() {
    let database = fresh().await;
    let store = store(&database.url());
    let relay = register(&store, "one").await;
    let claimed = reopen(&store, relay, Start::Oldest).await;
    database
        .psql("select posthaste.emit('t', 'e' || n, key => 'k') from generate_series(1, 3000) n");
    let page = claimed.next(pages_of(5)).await.unwrap();
    assert!(!page.joinable);
    let mut park = parking(&page, 1, None);
    park.kind = "schema";
    claimed.park(&[park]).await.unwrap();
    claimed.advance(&page.end, &[]).await.unwrap();

    let claimed = reopen(&store, relay, Start::Oldest).await;
    // The rest of the difference passes the blocked key over.
    let standing = loop {
        let page = claimed.next(ALL).await.unwrap();
        claimed.advance(&page.end, &[]).await.unwrap();
        if page.caught_up {
            break page;
        }
    };
    assert_eq!(
        store
            .act(&ParkedFilter::default(), DeadAction::Skip)
            .await
            .unwrap(),
        1
    );
    assert_eq!(claimed.due(10).await.unwrap().released, ["k"]);
    let mut side = claimed.side_read(&["k".into()]).await.unwrap();
    let expected: Vec<String> = (3..=3000).map(|n| format!("e{n}")).collect();
    assert_eq!(side_drain(&mut side, &standing.end).await, expected);

    // Moved along, it is not behind the end of the difference any more.
    let again = reopen(&store, relay, Start::Oldest).await;
    let mut side = again.side_read(&["k".into()]).await.unwrap();
    let standing = again.next(ALL).await.unwrap();
    assert!(side_drain(&mut side, &standing.end).await.is_empty());
    again.join(&["k".into()], &standing.end).await.unwrap();
}

#[tokio::test]
async fn a_side_read_finds_rows_of_transactions_that_committed_late() {
    let database = fresh().await;
    let store = store(&database.url());
    let claimed = open(&store, Start::Oldest).await;
    let late = writer(&database.url()).await;
    late.batch_execute("begin; select posthaste.emit('t', 'late', key => 'k')")
        .await
        .unwrap();
    emit(&database, "k", "first");
    let page = claimed.next(ALL).await.unwrap();
    claimed.park(&[parking(&page, 0, None)]).await.unwrap();
    for _ in 0..3 {
        let page = claimed.next(ALL).await.unwrap();
        claimed.advance(&page.end, &[]).await.unwrap();
    }
    late.batch_execute("commit").await.unwrap();
    store
        .act(&ParkedFilter::default(), DeadAction::Skip)
        .await
        .unwrap();
    let standing = claimed.next(ALL).await.unwrap();
    assert_eq!(payloads_of(&standing), ["late"]);
    let mut side = claimed.side_read(&["k".into()]).await.unwrap();
    assert_eq!(side_drain(&mut side, &standing.end).await, ["late"]);
}

#[tokio::test]
async fn attempts_end_in_death_or_in_a_skip_and_operators_decide() {
    let database = fresh().await;
    let store = store(&database.url());
    let claimed = open(&store, Start::Oldest).await;
    for key in ["a", "b", "c"] {
        emit(&database, key, key);
    }
    let page = claimed.next(ALL).await.unwrap();
    let hour = Some(Duration::from_secs(3600));
    let parkings = [
        parking(&page, 0, hour),
        parking(&page, 1, None),
        Parking {
            next: AfterFailure::Skip,
            ..parking(&page, 2, None)
        },
    ];
    claimed.park(&parkings).await.unwrap();
    let states = || database.psql("select key, state, attempts from posthaste.parked order by id");
    assert_eq!(states(), "a|parked|1\nb|dead|1\nc|skipped|1");
    assert_eq!(claimed.markers(None, 10).await.unwrap().len(), 2);
    let due = claimed.due(10).await.unwrap();
    assert!(due.events.is_empty());
    assert!(due.next_in.unwrap() > Duration::from_secs(3500));

    let waiting = store.parked(&ParkedFilter::default(), 10).await.unwrap();
    assert_eq!(waiting.len(), 2);
    assert_eq!(waiting[1].reason, "no such thing");
    assert!(waiting[0].due_at.unwrap() > waiting[0].parked_at && waiting[1].due_at.is_none());

    // A retry has a full set of attempts.
    let key_b = ParkedFilter {
        key: Some("b".to_owned()),
        ..ParkedFilter::default()
    };
    assert_eq!(store.act(&key_b, DeadAction::Retry).await.unwrap(), 1);
    let copy = claimed.due(10).await.unwrap().events.remove(0);
    assert_eq!((copy.event.key(), copy.attempts), (Some("b"), 0));
    let failed = |next| Settlement::Failed {
        kind: "other",
        reason: "again".to_owned(),
        next,
    };
    claimed
        .settle(
            copy.id,
            &failed(AfterFailure::RetryIn(Duration::from_secs(3600))),
        )
        .await
        .unwrap();
    assert_eq!(states(), "a|parked|1\nb|parked|1\nc|skipped|1");
    claimed
        .settle(copy.id, &failed(AfterFailure::Skip))
        .await
        .unwrap();
    let by_id = ParkedFilter {
        id: Some(page.events[0].id()),
        ..ParkedFilter::default()
    };
    assert_eq!(store.act(&by_id, DeadAction::Discard).await.unwrap(), 1);
    assert_eq!(store.act(&by_id, DeadAction::Discard).await.unwrap(), 0);
    assert_eq!(states(), "a|discarded|1\nb|skipped|2\nc|skipped|1");
    assert_eq!(claimed.due(10).await.unwrap().released, ["a", "b"]);
    let discarded = ParkedFilter {
        state: Some(ParkedState::Discarded),
        ..ParkedFilter::default()
    };
    let discarded = store.parked(&discarded, 10).await.unwrap();
    assert_eq!(discarded[0].event.payload(), None);
    assert_eq!(
        database.psql("select action from posthaste.audit order by id"),
        "destination created\npark\ndead\nskip\ndead retry\nskip\ndead discard"
    );
}

/// Else a copy would be tried again by nobody: its destination is gone.
#[tokio::test]
async fn a_skipped_event_is_not_tried_again_where_its_destination_is_being_removed() {
    let database = fresh().await;
    let store = store(&database.url());
    let claimed = open(&store, Start::Oldest).await;
    emit(&database, "a", "a");
    let page = claimed.next(ALL).await.unwrap();
    let skipped = Parking {
        next: AfterFailure::Skip,
        ..parking(&page, 0, None)
    };
    claimed.park(&[skipped]).await.unwrap();
    let mut remover = writer(&database.url()).await;
    let removal = remover.transaction().await.unwrap();
    let remove = "update posthaste.destinations set state = 'removed', removed_at = now()";
    removal.execute(remove, &[]).await.unwrap();
    let mut acting = tokio::spawn(async move {
        let skipped = ParkedFilter {
            state: Some(ParkedState::Skipped),
            ..ParkedFilter::default()
        };
        store.act(&skipped, DeadAction::Retry).await
    });
    tokio::select! {
        () = wait_for_waits(&database, 1) => removal.commit().await.unwrap(),
        acted = &mut acting => panic!("it did not wait for the removal: {acted:?}"),
    }
    assert_eq!(acting.await.unwrap().unwrap(), 0);
    assert_eq!(
        database.psql("select state from posthaste.parked"),
        "skipped"
    );
}

/// A claim has no time for all of them at once, and would never come to its end.
#[tokio::test]
async fn a_destination_is_created_again_whatever_copies_its_name_left() {
    let database = fresh().await;
    let first = store(&database.url());
    drop(open(&first, Start::Oldest).await);
    database.psql(
        "update posthaste.destinations set state = 'removed', removed_at = now();
         insert into posthaste.outbox (topic, key, payload)
         select 't', 'k' || n, 'x' from generate_series(1, 10001) n;
         insert into posthaste.parked (destination_id, state, attempts, kind, reason, seq, event_id,
             slot, topic, key, headers, occurred_at, inserted_at)
         select d.id, 'skipped', 6, 'other', 'by hand', o.seq, o.id,
             0, o.topic, o.key, '{}', now(), now()
         from posthaste.destinations d, posthaste.outbox o",
    );
    // Its creation is cut short after the first transaction that discards some of them.
    database.psql(
        "create function cut() returns trigger language plpgsql as $$ begin
             if exists (select from posthaste.audit where action = 'read again') then
                 raise 'cut short';
             end if;
             return new;
         end $$;
         create trigger cut before insert on posthaste.audit for each row
             when (new.action = 'read again') execute function cut()",
    );
    let again = store(&database.url());
    let relay = register(&again, "two").await;
    let claim = ClaimRequest::all("default", "null:");
    let error = again.claim(relay, &claim).await.unwrap_err();
    assert!(error.to_string().contains("cut short"), "{error}");
    // It keeps the events of the others, and of those that are discarded, in the outbox.
    let kept = "select (select count(*) from posthaste.destinations where state = 'active'),
                (select count(*) from posthaste.parked where state = 'skipped')";
    assert_eq!(database.psql(kept), "1|1");
    database.psql("drop trigger cut on posthaste.audit");
    let _claimed = open(&again, Start::Oldest).await;
    let discarded = "select state, count(*), count(distinct xmin::text) from posthaste.parked \
                     group by 1";
    assert_eq!(database.psql(discarded), "discarded|10001|2");
}

/// More than one statement has the time for.
#[tokio::test]
async fn a_destination_is_removed_however_many_events_it_has_parked() {
    let database = fresh().await;
    let store = store(&database.url());
    drop(open(&store, Start::Oldest).await);
    park_dead(&database, 20_001);
    database.psql("update posthaste.relays set lease_until = now()");
    let removed = DestinationState::Removed;
    assert!(store.set_destination("default", removed).await.unwrap());
    let closed = "select state, count(*), count(distinct xmin::text) from posthaste.parked \
                  group by 1";
    assert_eq!(database.psql(closed), "skipped|20001|3");
    let audited = "select action, detail from posthaste.audit where action like 'destination %' \
                   order by at offset 1";
    assert_eq!(
        database.psql(audited),
        "destination emptied|10000 parked events closed as skipped\n\
         destination emptied|10000 parked events closed as skipped\n\
         destination removed|20001 parked events closed as skipped"
    );
}

#[tokio::test]
async fn a_relay_that_comes_amid_a_removal_keeps_the_destination() {
    let database = fresh().await;
    let store = store(&database.url());
    drop(open(&store, Start::Oldest).await);
    park_dead(&database, 10_001);
    database.psql(
        "update posthaste.relays set lease_until = now();
         create function comes() returns trigger language plpgsql as $$ begin
             update posthaste.relays set lease_until = now() + interval '1 hour';
             return new;
         end $$;
         create trigger comes after insert on posthaste.audit for each row
             when (new.action = 'destination emptied') execute function comes()",
    );
    let removed = DestinationState::Removed;
    let error = store.set_destination("default", removed).await.unwrap_err();
    let said = "it came when 10000 parked events had been skipped already";
    assert!(error.to_string().contains(said), "{error}");
    let left = "select d.state, p.state, count(*)
        from posthaste.destinations d join posthaste.parked p on p.destination_id = d.id
        group by 1, 2 order by 2";
    assert_eq!(database.psql(left), "active|dead|1\nactive|skipped|10000");
}

/// More than one statement has the time for.
#[tokio::test]
async fn operators_act_on_any_number_of_events() {
    let database = fresh().await;
    let store = store(&database.url());
    let _claimed = open(&store, Start::Oldest).await;
    park_dead(&database, 20_001);
    let all = ParkedFilter::default();
    for action in [DeadAction::Retry, DeadAction::Discard] {
        assert_eq!(store.act(&all, action).await.unwrap(), 20_001);
    }
    let audited = "select action, count(*) from posthaste.audit where action like 'dead %' \
                   group by 1 order by 1";
    assert_eq!(
        database.psql(audited),
        "dead discard|20001\ndead retry|20001"
    );
    assert_eq!(
        database.psql("select distinct state from posthaste.parked"),
        "discarded"
    );
}

#[tokio::test]
async fn a_zombie_changes_nothing() {
    let database = fresh().await;
    let store = store(&database.url());
    let relay = register(&store, "one").await;
    let zombie = reopen(&store, relay, Start::Oldest).await;
    emit(&database, "k", "e");
    let page = zombie.next(ALL).await.unwrap();
    zombie.park(&[parking(&page, 0, None)]).await.unwrap();
    let mut side = zombie.side_read(&["k".into()]).await.unwrap();
    let _newer = reopen(&store, relay, Start::Oldest).await;
    let before =
        database.psql("select * from posthaste.parked, posthaste.markers, posthaste.cursors");
    let fenced = |result: Result<(), StoreError>| {
        assert!(
            matches!(result, Err(StoreError::Fenced { .. })),
            "{result:?}"
        );
    };
    fenced(zombie.park(&[parking(&page, 0, None)]).await);
    fenced(zombie.settle(1, &Settlement::Delivered).await);
    fenced(zombie.advance(&page.end, &[]).await.map(drop));
    fenced(zombie.join(&["k".into()], &page.end).await);
    fenced(side.advance(&page.end, &[]).await);
    assert_eq!(
        database.psql("select * from posthaste.parked, posthaste.markers, posthaste.cursors"),
        before
    );
}

#[tokio::test]
async fn status_counts_what_is_pending_parked_and_blocked() {
    let database = fresh().await;
    let store = store(&database.url());
    let claimed: Arc<dyn Claimed> = open(&store, Start::Oldest).await;
    for n in 0..3 {
        emit(&database, "bad", &format!("bad{n}"));
        emit(&database, "good", &format!("good{n}"));
    }
    let status = store.status().await.unwrap();
    assert_eq!((status.pending, status.pending_exact), (6, true));
    assert!(status.oldest_pending_age.is_some());
    let page = claimed.next(ALL).await.unwrap();
    claimed.park(&[parking(&page, 0, None)]).await.unwrap();
    claimed
        .advance(&page.cursor_at(&page.events[3]), &[])
        .await
        .unwrap();
    claimed.report("open", Some("away")).await.unwrap();
    let status = store.status().await.unwrap();
    let of = &status.destinations[0];
    // bad1 waits behind the marker; bad2 and good2 behind the cursor.
    assert_eq!(
        (of.pending, of.parked, of.dead, of.blocked_keys),
        (3, 0, 1, 1)
    );
    assert_eq!(
        (of.breaker.as_str(), of.last_error.as_deref()),
        ("open", Some("away"))
    );
    assert_eq!(
        (of.address.as_str(), of.relay.as_deref()),
        ("null:", Some("test"))
    );
    assert_eq!(status.pending, 3);
    assert_eq!(
        (status.relays[0].state.as_str(), status.relays[0].partitions),
        ("live", 64)
    );
    assert!(status.retained_bytes > 0);
    claimed.advance(&page.end, &[]).await.unwrap();
    assert_eq!(store.status().await.unwrap().pending, 2);
}

#[tokio::test]
async fn beyond_the_exact_count_pending_is_an_upper_bound() {
    let database = fresh().await;
    let store = store(&database.url());
    let _claimed = open(&store, Start::Oldest).await;
    database
        .psql("insert into posthaste.outbox (topic) select 't' from generate_series(1, 100001)");
    let status = store.status().await.unwrap();
    assert!(!status.pending_exact);
    assert!(status.pending >= 100_001);
    database.psql("delete from posthaste.outbox where seq = 7");
    let status = store.status().await.unwrap();
    assert_eq!((status.pending, status.pending_exact), (100_000, true));
}
