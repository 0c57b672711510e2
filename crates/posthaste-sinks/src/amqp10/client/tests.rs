//! A session against a peer whose every word is written here: as brokers may be, and Artemis is
//! not.

use std::{sync::Arc, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex, split},
    time::timeout,
};

use super::{
    Condition, Connection, End, Error, Patience, Room, Session, State, attach,
    connection::{PeerSession, Reader},
    performative::PeerOpen,
    value::{Elements, Reader as Values, Value, Writer},
};
use crate::transport::{ReadBuffer, Stream};

const LIMIT: Duration = Duration::from_secs(1);

/// A frame that the session sent: its code, its fields, and the bytes behind them.
type Frame = (u64, Vec<Value>, Vec<u8>);

struct Peer(DuplexStream);

impl Peer {
    async fn say(&mut self, code: u8, fields: impl FnOnce(&mut Elements<'_>)) {
        let mut frame = vec![0, 0, 0, 0, 2, 0, 0, 0];
        let mut w = Writer(&mut frame);
        w.descriptor(code);
        w.list(fields);
        let size = u32::try_from(frame.len()).unwrap();
        frame[..4].copy_from_slice(&size.to_be_bytes());
        self.0.write_all(&frame).await.unwrap();
    }

    /// Attaches the first link, and gives it this credit, within this window of transfers.
    async fn attach(&mut self, name: &Value, window: u32, credit: u32) {
        let Value::Text(name) = name else {
            panic!("{name:?}");
        };
        self.say(0x12, |fields| {
            fields.next().string(name);
            fields.next().uint(7);
            fields.nulls(8);
            fields.next().uint(900);
        })
        .await;
        self.flow(0, window, Some((0, credit))).await;
    }

    async fn flow(&mut self, next: u32, window: u32, link: Option<(u32, u32)>) {
        self.say(0x13, |fields| {
            for number in [next, window, 0, 0] {
                fields.next().uint(number);
            }
            if let Some((count, credit)) = link {
                for number in [7, count, credit] {
                    fields.next().uint(number);
                }
            }
        })
        .await;
    }

    async fn settle(&mut self, [first, last]: [u32; 2], is_settled: bool, state: u8) {
        self.say(0x15, |fields| {
            fields.next().bool(true);
            fields.next().uint(first);
            fields.next().uint(last);
            fields.next().bool(is_settled);
            let mut w = fields.next();
            w.descriptor(state);
            w.list(|_| {});
        })
        .await;
    }

    async fn hear(&mut self) -> Frame {
        let size = self.0.read_u32().await.unwrap();
        let mut frame = vec![0; usize::try_from(size).unwrap() - 4];
        self.0.read_exact(&mut frame).await.unwrap();
        if frame.len() == 4 {
            return (0, Vec::new(), Vec::new());
        }
        let mut values = Values(&frame[4..]);
        match values.value().unwrap() {
            Value::Described(code, fields) => match *fields {
                Value::List(fields) => (code, fields, values.0.to_vec()),
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        }
    }
}

/// A session of a peer with this window, which takes frames of 512 bytes.
fn session(window: u32, idle_millis: Option<u32>) -> (Session, Peer) {
    let (ours, theirs) = duplex(1 << 20);
    let (reader, writer) = split(Box::new(ours) as Box<dyn Stream>);
    let connection = Connection {
        reader: Reader(ReadBuffer::new(reader, Vec::new())),
        writer,
        peer: PeerOpen {
            frame_max: 512,
            idle_millis,
            ..PeerOpen::default()
        },
        container_id: "us".to_owned(),
        session: PeerSession {
            next_outgoing_id: 0,
            incoming_window: window,
            handle_max: 9,
        },
    };
    let patience = Patience {
        answer: Duration::from_secs(10),
        silence: Duration::from_secs(60),
    };
    (
        Session::new(connection, Some("queue"), patience),
        Peer(theirs),
    )
}

/// Lets the session do what there is to do, for so long.
async fn turn(session: &mut Session, time: Duration) -> Result<(), Error> {
    let turning = async {
        loop {
            session.turn().await?;
        }
    };
    timeout(time, turning).await.unwrap_or(Ok(()))
}

/// With one link that has this credit.
async fn attached(window: u32, credit: u32) -> (Session, Peer, u32) {
    let (mut session, mut peer) = session(window, None);
    let address: Arc<str> = "orders".into();
    assert_eq!(session.room(&address), Room::No { sent: None });
    turn(&mut session, LIMIT).await.unwrap();
    let (code, fields, _) = peer.hear().await;
    assert_eq!(code, 0x12);
    peer.attach(&fields[0], window, credit).await;
    assert_eq!(attach(&mut session, &address, LIMIT).await.unwrap(), None);
    let Room::Yes {
        handle,
        message_bytes_max: Some(900),
    } = session.room(&address)
    else {
        panic!("there is no room");
    };
    (session, peer, handle)
}

#[tokio::test(start_paused = true)]
async fn a_message_goes_in_parts_as_the_window_has_room() {
    let (mut session, mut peer, handle) = attached(2, 5).await;
    session.send(3, handle, vec![b'x'; 1_200]);
    assert!(!session.has_room());
    turn(&mut session, LIMIT).await.unwrap();
    for _ in 0..2 {
        let (code, fields, bytes) = peer.hear().await;
        assert_eq!((code, &fields[5]), (0x14, &Value::Bool(true)));
        assert_eq!(bytes.len(), 448);
    }
    peer.flow(2, 2, Some((1, 4))).await;
    turn(&mut session, LIMIT).await.unwrap();
    let (code, fields, bytes) = peer.hear().await;
    assert_eq!(
        (code, &fields[5], bytes.len()),
        (0x14, &Value::Bool(false), 304)
    );
    assert!(session.has_room());
    // Unsettled with its outcome: we settle too.
    peer.settle([0, 0], false, 0x24).await;
    turn(&mut session, LIMIT).await.unwrap();
    assert_eq!(session.take_ended(), [(3, End::State(State::Accepted))]);
    assert_eq!(peer.hear().await.0, 0x15);
}

/// A receiver that pulls: what waits is sent before the credit is given back.
#[tokio::test(start_paused = true)]
async fn credit_that_is_to_be_drained_is_used_first() {
    let (mut session, mut peer, handle) = attached(100, 1).await;
    peer.say(0x13, |fields| {
        for number in [0, 100, 0, 0, 7, 0, 10] {
            fields.next().uint(number);
        }
        fields.nulls(1);
        fields.next().bool(true);
    })
    .await;
    session.turn().await.unwrap();
    let room = session.room(&"orders".into());
    assert!(matches!(room, Room::Yes { .. }), "{room:?}");
    session.send(0, handle, vec![b'x']);
    turn(&mut session, LIMIT).await.unwrap();
    assert_eq!(peer.hear().await.0, 0x14);
    let (code, fields, _) = peer.hear().await;
    let all_used = [u64::from(handle), 10, 0].map(Value::Unsigned);
    assert_eq!((code, &fields[4..7]), (0x13, &all_used[..]));
    let room = session.room(&"orders".into());
    assert!(matches!(room, Room::No { .. }), "{room:?}");
}

#[tokio::test(start_paused = true)]
async fn outcomes_come_for_several_and_in_any_order() {
    let (mut session, mut peer, handle) = attached(100, 100).await;
    for slot in 0..4 {
        session.send(slot, handle, vec![b'x']);
    }
    turn(&mut session, LIMIT).await.unwrap();
    peer.settle([3, 3], true, 0x26).await;
    // Bytes have come so far: no outcome.
    peer.settle([2, 2], false, 0x23).await;
    peer.settle([0, 1], true, 0x24).await;
    // Of no delivery that there is.
    peer.settle([9, 9], true, 0x24).await;
    peer.settle([1, 0], true, 0x24).await;
    turn(&mut session, LIMIT).await.unwrap();
    let state = End::State;
    assert_eq!(
        session.take_ended(),
        [
            (3, state(State::Released)),
            (0, state(State::Accepted)),
            (1, state(State::Accepted)),
        ]
    );
    peer.settle([2, 2], true, 0x27).await;
    turn(&mut session, LIMIT).await.unwrap();
    assert_eq!(session.take_ended(), [(2, state(State::Modified))]);
}

/// The peer is asked how far it has read.
#[tokio::test(start_paused = true)]
async fn a_message_without_an_outcome_was_read_or_not() {
    for has_read in [false, true] {
        let (mut session, mut peer, handle) = attached(100, 100).await;
        session.send(0, handle, vec![b'x']);
        turn(&mut session, Duration::from_secs(6)).await.unwrap();
        assert_eq!(peer.hear().await.0, 0x14);
        let (code, fields, _) = peer.hear().await;
        assert_eq!((code, fields.last()), (0x13, Some(&Value::Bool(true))));
        peer.flow(u32::from(has_read), 100, None).await;
        turn(&mut session, Duration::from_secs(6)).await.unwrap();
        let limit = Duration::from_secs(10);
        let was_read = has_read;
        assert_eq!(
            session.take_ended(),
            [(0, End::Silence { limit, was_read })]
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_link_that_ends_takes_its_messages_along() {
    let (mut session, mut peer, handle) = attached(1, 100).await;
    session.send(0, handle, vec![b'x'; 600]);
    turn(&mut session, LIMIT).await.unwrap();
    peer.say(0x16, |fields| {
        fields.next().uint(7);
        fields.next().bool(true);
        let mut error = fields.next();
        error.descriptor(0x1d);
        error.list(|fields| fields.next().symbol("amqp:link:stolen"));
    })
    .await;
    turn(&mut session, LIMIT).await.unwrap();
    let why = Condition {
        name: "amqp:link:stolen".to_owned(),
        description: String::new(),
    };
    let is_alone = true;
    let end = End::LinkEnded {
        why: why.clone(),
        is_alone,
    };
    assert_eq!(session.take_ended(), [(0, end)]);
    assert_eq!(session.take_ended_links(), [("orders".into(), why)]);
    assert_eq!([peer.hear().await.0, peer.hear().await.0], [0x14, 0x16]);
    // The rest of the message goes nowhere.
    peer.flow(1, 5, None).await;
    turn(&mut session, LIMIT).await.unwrap();
    assert_eq!(session.room(&"orders".into()), Room::No { sent: None });
    turn(&mut session, LIMIT).await.unwrap();
    assert_eq!(peer.hear().await.0, 0x12);
}

#[tokio::test(start_paused = true)]
async fn credit_that_is_taken_back_is_given_up() {
    let (mut session, mut peer, _) = attached(100, 5).await;
    peer.say(0x13, |fields| {
        for number in [0, 100, 0, 0, 7, 0, 5, 0] {
            fields.next().uint(number);
        }
        fields.next().bool(true);
    })
    .await;
    turn(&mut session, LIMIT).await.unwrap();
    let (code, fields, _) = peer.hear().await;
    let number = Value::Unsigned;
    assert_eq!((code, &fields[5..7]), (0x13, &[number(5), number(0)][..]));
    assert_eq!(session.room(&"orders".into()), Room::No { sent: None });
}

#[tokio::test(start_paused = true)]
async fn each_side_says_that_it_is_there() {
    let (mut session, mut peer) = session(1, Some(10_000));
    turn(&mut session, Duration::from_secs(11)).await.unwrap();
    assert_eq!([peer.hear().await.0, peer.hear().await.0], [0, 0]);
    let silent = turn(&mut session, Duration::from_secs(200)).await;
    assert!(matches!(silent, Err(Error::Silent(limit)) if limit.as_secs() == 120));
}
