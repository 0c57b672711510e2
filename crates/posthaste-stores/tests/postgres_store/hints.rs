//! Hints of writers to idle relays.

use std::{future::poll_fn, time::Duration};

use posthaste_engine::{Start, Store};
use posthaste_stores::postgres::{InitOptions, init};
use tokio_postgres::{AsyncMessage, NoTls};

use crate::support::{claim, fresh, register, store, writer};

/// Nobody waits so long for what comes.
const LONG: Duration = Duration::from_secs(60);

async fn switch(url: &str, on: bool) {
    let options = InitOptions {
        notify: Some(on),
        ..InitOptions::default()
    };
    init(url, &options).await.expect("init");
}

#[tokio::test]
async fn a_commit_hints_to_whoever_waits() {
    let database = fresh().await;
    switch(&database.url(), true).await;
    let store = store(&database.url());
    let relay = register(&store, "one").await;
    let claimed = store
        .open(&claim(&store, relay, Start::Oldest).await)
        .await
        .unwrap();
    // The listener's own notification, which says that it listens.
    tokio::time::timeout(LONG, claimed.hinted()).await.unwrap();
    let writes = writer(&database.url()).await;
    for _ in 0..3 {
        writes
            .batch_execute("select posthaste.emit('t', 'x')")
            .await
            .unwrap();
        tokio::time::timeout(LONG, claimed.hinted()).await.unwrap();
    }
}

#[tokio::test]
async fn one_of_the_transactions_that_write_at_once_hints() {
    let database = fresh().await;
    switch(&database.url(), true).await;
    let (listener, mut connection) = tokio_postgres::connect(&database.url(), NoTls)
        .await
        .unwrap();
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
            if let AsyncMessage::Notification(of) = message {
                drop(tell.send(of.payload().to_owned()));
            }
        }
    });
    listener.batch_execute("listen posthaste").await.unwrap();
    let writers = [writer(&database.url()).await, writer(&database.url()).await];
    for one in &writers {
        let write = "begin; select posthaste.emit('t', 'x'); select posthaste.emit('t', 'x')";
        one.batch_execute(write).await.unwrap();
    }
    for one in &writers {
        one.batch_execute("commit").await.unwrap();
    }
    listener
        .batch_execute("notify posthaste, 'end'")
        .await
        .unwrap();
    let mut payloads = Vec::new();
    while payloads.last().is_none_or(|last| last != "end") {
        payloads.push(
            tokio::time::timeout(LONG, told.recv())
                .await
                .unwrap()
                .unwrap(),
        );
    }
    assert_eq!(payloads, ["", "end"]);
    switch(&database.url(), false).await;
    writers[0]
        .batch_execute("select posthaste.emit('t', 'x')")
        .await
        .unwrap();
    listener
        .batch_execute("notify posthaste, 'off'")
        .await
        .unwrap();
    let next = tokio::time::timeout(LONG, told.recv()).await.unwrap();
    assert_eq!(next.as_deref(), Some("off"));
}
