//! Transactions that XA has prepared outlive their sessions, and the server's process.

use posthaste_testkit::servers::mysql::{MysqlServer, Version};
use tokio::task::block_in_place;

use super::support::{Outbox, Relay};

super::on_all! {
    a_prepared_transaction_whose_session_is_gone_is_waited_for
    a_prepared_transaction_of_a_former_life_of_the_server_is_waited_for
}

fn own(version: Version) -> MysqlServer {
    block_in_place(|| MysqlServer::builder(version).shows_locks().start())
}

async fn prepare(outbox: &Outbox) {
    let mut a = outbox.writer().await;
    a.run("xa start 'x1'").await;
    a.insert("late").await;
    a.run("xa end 'x1'; xa prepare 'x1'").await;
    a.0.disconnect().await.unwrap();
}

/// T5: on MariaDB its lock is gone with the session; on MySQL it has another identity.
async fn a_prepared_transaction_whose_session_is_gone_is_waited_for(version: Version) {
    let server = own(version);
    let outbox = Outbox::on(&server).await;
    let relay = Relay::new(&outbox).await;
    let mut b = outbox.writer().await;
    let mut a = outbox.writer().await;
    a.run("xa start 'x1'").await;
    a.insert("late").await;
    let high = b.insert("early").await;
    assert_eq!(relay.read_all().await, ["early"]);
    // The lock is in a sample.
    relay.must_stay_open(&outbox).await;
    a.run("xa end 'x1'; xa prepare 'x1'").await;
    a.0.disconnect().await.unwrap();
    relay.must_stay_open(&outbox).await;
    // Also for one that begins now.
    let relay = relay.again().await;
    relay.must_stay_open(&outbox).await;
    b.run("xa commit 'x1'").await;
    assert_eq!(b.behind(high).await, Vec::<String>::new());
    assert_eq!(relay.until_closed(&outbox).await, ["late"]);
}

/// T6
async fn a_prepared_transaction_of_a_former_life_of_the_server_is_waited_for(version: Version) {
    let server = own(version);
    let outbox = Outbox::on(&server).await;
    let relay = Relay::new(&outbox).await;
    prepare(&outbox).await;
    let mut b = outbox.writer().await;
    b.insert("early").await;
    assert_eq!(relay.read_all().await, ["early"]);
    block_in_place(|| {
        server.kill9();
        server.start_again();
    });
    let relay = relay.again().await;
    let mut b = outbox.writer().await;
    b.insert("later").await;
    assert_eq!(
        relay.read_all().await,
        ["later"],
        "numbers go on above the prepared one's"
    );
    relay.must_stay_open(&outbox).await;
    b.run("xa commit 'x1'").await;
    assert_eq!(relay.until_closed(&outbox).await, ["late"]);
}
