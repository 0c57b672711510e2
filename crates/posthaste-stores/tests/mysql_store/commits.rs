//! Commits in another order than that of the numbers.

use std::time::Duration;

use posthaste_engine::Budget;
use posthaste_testkit::servers::mysql::Version;

use super::support::{Outbox, PLENTY, Relay, names};

super::on_all! {
    a_late_commit_is_read
    a_hole_is_closed_once_its_transaction_is_rolled_back
    a_hole_stays_open_as_long_as_its_transaction
    every_kind_of_writer_is_waited_for
    a_commit_between_the_sample_and_the_next_read_is_read
    a_page_that_ends_before_the_hole_closes_nothing
    the_order_of_a_key_is_that_of_its_commits
    a_change_of_the_table_that_waits_holds_up_one_read
    a_claim_goes_on_with_the_holes_of_the_last_one
    uncommitted_rows_are_never_read
    a_claim_with_as_many_holes_as_may_be_has_not_caught_up
}

/// T1: A draws 1 and stays open, B commits 2, then A commits.
async fn a_late_commit_is_read(version: Version) {
    let outbox = Outbox::shared(version).await;
    let (mut a, mut b) = (outbox.writer().await, outbox.writer().await);
    let relay = Relay::new(&outbox).await;
    a.begin().await;
    a.insert("late").await;
    let high = b.insert("early").await;
    assert_eq!(relay.read_all().await, ["early"]);
    a.commit().await;
    assert_eq!(
        b.behind(high).await,
        Vec::<String>::new(),
        "the simple reader loses it"
    );
    assert_eq!(relay.read_all().await, ["late"]);
    assert_eq!(relay.until_closed(&outbox).await, Vec::<String>::new());
}

/// T2: a hole is not given up, but closed when its transaction has ended.
async fn a_hole_is_closed_once_its_transaction_is_rolled_back(version: Version) {
    let outbox = Outbox::shared(version).await;
    let (mut a, mut b) = (outbox.writer().await, outbox.writer().await);
    let relay = Relay::new(&outbox).await;
    a.begin().await;
    a.insert("never").await;
    b.insert("early").await;
    assert_eq!(relay.read_all().await, ["early"]);
    relay.must_stay_open(&outbox).await;
    a.rollback().await;
    assert_eq!(relay.until_closed(&outbox).await, Vec::<String>::new());
}

async fn a_hole_stays_open_as_long_as_its_transaction(version: Version) {
    let outbox = Outbox::shared(version).await;
    let (mut a, mut b) = (outbox.writer().await, outbox.writer().await);
    let relay = Relay::new(&outbox).await;
    a.begin().await;
    a.insert("late").await;
    // A savepoint gives numbers back, and no lock.
    a.run("savepoint s").await;
    a.insert("taken back").await;
    a.run("rollback to savepoint s").await;
    for number in 0..5 {
        let name = format!("early {number}");
        b.insert(&name).await;
        assert_eq!(relay.read_all().await, [name], "it delays only itself");
    }
    relay.must_stay_open(&outbox).await;
    a.commit().await;
    assert_eq!(relay.until_closed(&outbox).await, ["late"]);
}

/// T13: a lock of low priority has another name, and LOCK TABLES a stronger lock. A filter for the
/// usual name alone would see neither.
async fn every_kind_of_writer_is_waited_for(version: Version) {
    let outbox = Outbox::shared(version).await;
    let relay = Relay::new(&outbox).await;
    let ways = [
        "insert low_priority into posthaste_outbox (topic, payload) values ('t', 'late')",
        "insert into posthaste_outbox (topic, payload) select 't', 'late' from dual",
        "replace into posthaste_outbox (topic, payload) values ('t', 'late')",
    ];
    for way in ways {
        let (mut a, mut b) = (outbox.writer().await, outbox.writer().await);
        a.begin().await;
        a.run(way).await;
        b.insert("early").await;
        assert_eq!(relay.read_all().await, ["early"], "{way}");
        relay.must_stay_open(&outbox).await;
        a.commit().await;
        assert_eq!(relay.until_closed(&outbox).await, ["late"], "{way}");
    }
}

/// T4: the sample finds nobody, since the transaction has committed just before it. Closing without
/// another read would lose its event.
async fn a_commit_between_the_sample_and_the_next_read_is_read(version: Version) {
    let outbox = Outbox::shared(version).await;
    let relay = Relay::new(&outbox).await;
    let mut read = 0;
    for round in 0..10 {
        let (mut a, mut b) = (outbox.writer().await, outbox.writer().await);
        a.begin().await;
        a.insert(&format!("late {round}")).await;
        b.insert(&format!("early {round}")).await;
        read += relay.read_all().await.len();
        a.commit().await;
        // The sample of this read is the first one that finds nobody.
        read += relay.read_for(1).await.len();
    }
    read += relay.until_closed(&outbox).await.len();
    assert_eq!(read, 20);
}

/// T14
async fn a_page_that_ends_before_the_hole_closes_nothing(version: Version) {
    let outbox = Outbox::shared(version).await;
    let (mut a, mut b) = (outbox.writer().await, outbox.writer().await);
    let relay = Relay::new(&outbox).await;
    let (mut low, mut high) = (outbox.writer().await, outbox.writer().await);
    low.begin().await;
    low.insert("low").await;
    b.insert("between").await;
    high.begin().await;
    high.insert("high").await;
    a.insert("behind").await;
    assert_eq!(relay.read_all().await, ["between", "behind"]);
    low.commit().await;
    high.commit().await;
    tokio::time::sleep(Duration::from_millis(60)).await;
    let one = Budget {
        events: 1,
        ..PLENTY
    };
    let page = relay.claimed.next(one).await.unwrap();
    assert_eq!(
        names(&page.events),
        ["low"],
        "after a sample that finds nobody"
    );
    relay.claimed.advance(&page.end, &[]).await.unwrap();
    let page = relay.claimed.next(one).await.unwrap();
    assert_eq!(names(&page.events), ["high"]);
}

/// T21: W1 locks the row of its key and emits, others draw higher numbers; W2 takes the lock when
/// W1 has committed.
async fn the_order_of_a_key_is_that_of_its_commits(version: Version) {
    let outbox = Outbox::shared(version).await;
    let (mut w1, mut w2) = (outbox.writer().await, outbox.writer().await);
    let relay = Relay::new(&outbox).await;
    w1.run("create table orders (id int primary key, n int)")
        .await;
    w1.run("insert into orders values (1, 0)").await;
    w1.begin().await;
    w1.run("select n from orders where id = 1 for update").await;
    w1.insert_keyed("first", "order").await;
    for other in 0..5 {
        w2.insert(&format!("other {other}")).await;
    }
    assert_eq!(relay.read_all().await.len(), 5);
    w1.commit().await;
    w2.begin().await;
    w2.run("select n from orders where id = 1 for update").await;
    w2.insert_keyed("second", "order").await;
    w2.commit().await;
    assert_eq!(relay.read().await, ["first", "second"], "in one page");
}

/// T25: a change of the table waits for an open transaction, and all who come later for it.
async fn a_change_of_the_table_that_waits_holds_up_one_read(version: Version) {
    let outbox = Outbox::shared(version).await;
    let (mut a, mut b) = (outbox.writer().await, outbox.writer().await);
    let relay = Relay::new(&outbox).await;
    a.begin().await;
    a.insert("late").await;
    let url = outbox.database.url();
    let change = tokio::spawn(async move {
        let mut c = super::support::connect(&url).await;
        use mysql_async::prelude::Queryable;
        // Under its default sql_mode MySQL 8.0.15 refuses to ALTER a table with such a default.
        c.query_drop(
            "rename table posthaste_outbox to posthaste_aside, posthaste_aside to posthaste_outbox",
        )
        .await
    });
    // It waits, which the server tells.
    loop {
        use mysql_async::prelude::Queryable;
        let sql = "select 1 from information_schema.processlist where db = database() and state \
                   like 'Waiting for table metadata lock'";
        let waits: Option<u8> = b.0.query_first(sql).await.unwrap();
        if waits.is_some() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let refused = relay.try_read().await;
    assert!(refused.is_err_and(|error| error.is_retryable()));
    a.commit().await;
    change.await.unwrap().unwrap();
    let relay = relay.again().await;
    assert_eq!(relay.until_closed(&outbox).await, ["late"]);
}

async fn a_claim_goes_on_with_the_holes_of_the_last_one(version: Version) {
    let outbox = Outbox::shared(version).await;
    let (mut a, mut b) = (outbox.writer().await, outbox.writer().await);
    let relay = Relay::new(&outbox).await;
    a.begin().await;
    a.insert("late").await;
    b.insert("early").await;
    assert_eq!(relay.read_all().await, ["early"]);
    let relay = relay.again().await;
    relay.must_stay_open(&outbox).await;
    a.commit().await;
    assert_eq!(relay.until_closed(&outbox).await, ["late"]);
}

/// T16: whatever the server's default is.
async fn uncommitted_rows_are_never_read(version: Version) {
    let outbox = Outbox::shared(version).await;
    let (mut a, mut b) = (outbox.writer().await, outbox.writer().await);
    let relay = Relay::new(&outbox).await;
    a.begin().await;
    a.insert("never").await;
    b.run("set session transaction isolation level read uncommitted")
        .await;
    assert_eq!(b.behind(0).await, ["never"], "the simple reader reads it");
    assert_eq!(relay.read_all().await, Vec::<String>::new());
    a.rollback().await;
}

/// It reads nothing new, and nobody may take it for drained.
async fn a_claim_with_as_many_holes_as_may_be_has_not_caught_up(version: Version) {
    let outbox = Outbox::shared(version).await.with("hole-proof=none");
    let relay = Relay::new(&outbox).await;
    let mut a = outbox.writer().await;
    // Each number is followed by one that nobody draws.
    a.run("set session auto_increment_increment = 2").await;
    for _ in 0..11 {
        a.insert_a_thousand().await;
    }
    assert!(relay.read_all().await.len() >= 10_000);
    a.insert("unread").await;
    let page = relay.claimed.next(PLENTY).await.unwrap();
    assert!(page.events.is_empty() && !page.caught_up);
}
