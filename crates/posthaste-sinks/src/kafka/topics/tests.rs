use posthaste_engine::{Decision, LaneRecords};
use posthaste_testkit::sink_suite::{SuiteEvent, records};

use super::*;
use crate::kafka::directory::TopicLayout;

fn layout(partitions: usize, leaderless: &[usize]) -> TopicLayout {
    TopicLayout {
        partitions,
        leaderless: Arc::new(leaderless.iter().copied().collect()),
        leaders: Arc::default(),
    }
}

/// The vectors of Apache Kafka's own `UtilsTest.testMurmur2`.
#[test]
fn keys_hash_as_in_java() {
    for (key, expected) in [
        ("21", -973_932_308),
        ("foobar", -790_332_482),
        ("a-little-bit-long-string", -985_981_536),
        ("a-little-bit-longer-string", -1_486_304_829),
        (
            "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8",
            -58_897_971,
        ),
        ("abc", 479_470_107),
    ] {
        assert_eq!(murmur2(key.as_bytes()).cast_signed(), expected, "{key}");
    }
}

#[test]
fn a_partition_is_opened_by_one_record() {
    let directory = Arc::<Directory>::default();
    let mut topics = Topics::new(Arc::clone(&directory));
    let now = Instant::now();
    assert!(matches!(topics.find("t", now), Found::NotYet));
    directory.answered("t", Ok(layout(2, &[])), now).unwrap();
    let Found::Topic(topic) = topics.find("t", now) else {
        panic!("not known");
    };
    assert_eq!((topic, topics.topics[topic].partitions.len()), (0, 2));
    let place = |partition| TopicPartition { topic, partition };
    assert_eq!(
        topics.entry(place(0), 1, BATCH_BYTES_MAX, now),
        Entry::First
    );
    topics.sent(place(0), 1, now);
    assert_eq!(topics.entry(place(0), 1, BATCH_BYTES_MAX, now), Entry::Wait);
    assert_eq!(
        topics.entry(place(1), 1, BATCH_BYTES_MAX, now),
        Entry::First
    );
    topics.accepted(place(0), 1, now);
    assert_eq!(topics.entry(place(0), 1, BATCH_BYTES_MAX, now), Entry::Open);
    let later = now + OPEN_FOR + Duration::from_secs(1);
    assert_eq!(
        topics.entry(place(0), 1, BATCH_BYTES_MAX, later),
        Entry::First
    );
    topics.sent(place(0), 1, now);
    assert_eq!(
        topics.entry(place(0), 1, BATCH_BYTES_MAX, later),
        Entry::Open
    );
    // A topic that takes small batches is given one at a time.
    topics.accepted(place(1), 0, now);
    assert_eq!(topics.entry(place(1), 100, 50, now), Entry::Open);
    topics.sent(place(1), 30, now);
    assert_eq!(topics.entry(place(1), 20, 50, now), Entry::Open);
    assert_eq!(topics.entry(place(1), 21, 50, now), Entry::Wait);
    topics.accepted(place(1), 30, now);
    assert_eq!(topics.entry(place(1), 21, 50, now), Entry::Open);
    topics.forget_producer();
    assert_eq!(
        topics.entry(place(0), 1, BATCH_BYTES_MAX, now),
        Entry::First
    );
    topics.doubt(&BTreeSet::from([0]), now);
    assert!(matches!(topics.find("t", now), Found::NotYet));
}

/// Records without a key go where a leader is. One whose key is bound to a partition without one is
/// told so by an answer that is new, or as often as the cluster does not tell in time.
#[test]
fn a_partition_without_a_leader_is_looked_up_anew() {
    const TIMEOUT: Duration = Duration::from_secs(4);
    let directory = Arc::<Directory>::default();
    let mut topics = Topics::new(Arc::clone(&directory));
    let mut keys = ["a", "b", "c", "d"].into_iter();
    let key = keys.find(|key| partition_of(key.as_bytes(), 3) == 1);
    let mut lane: LaneRecords<Instant, (), LookUpWait> = LaneRecords::default();
    let mut event = SuiteEvent::new(key, "v");
    event.topic = "t".to_owned();
    let now = Instant::now();
    lane.submit(records(&[event.clone()], 0), now);
    let mut route = |rotation: usize, at: Instant| {
        let mut routes = Vec::new();
        lane.decide(|item, _| {
            routes.push(topics.route(item, rotation, TIMEOUT, at));
            Decision::Wait
        });
        routes.remove(0)
    };
    assert!(matches!(route(0, now), Route::NotYet));
    let answered = |leaderless: &[usize], at| {
        directory.questions(at);
        let layout = Ok(layout(3, leaderless));
        directory.answered("t", layout, at).unwrap();
    };
    let place = TopicPartition {
        topic: 0,
        partition: 1,
    };
    answered(&[1], now);
    assert!(matches!(route(0, now), Route::Leaderless(found) if found == place));
    let later = now + Duration::from_secs(1);
    assert!(matches!(route(0, later), Route::NotYet));
    let late = now + TIMEOUT / 2;
    assert!(matches!(route(0, late), Route::Leaderless(found) if found == place));
    answered(&[], later);
    assert!(matches!(route(0, later), Route::To(found) if found == place));
    event.key = None;
    let record = records(&[event], 0).remove(0);
    let spread = |leaderless: &[usize]| {
        let leaderless = leaderless.iter().copied().collect();
        [0, 1, 2, 3].map(|rotation| super::place(&record, 3, &leaderless, rotation))
    };
    assert_eq!(spread(&[]), [0, 1, 2, 0]);
    assert_eq!(spread(&[1]), [0, 2, 0, 2]);
    assert_eq!(spread(&[0, 1, 2]), [0, 1, 2, 0]);
}
