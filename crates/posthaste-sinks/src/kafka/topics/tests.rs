use super::*;

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
    assert!(matches!(topics.find("t", now), Route::NotYet));
    directory.answered("t", Ok(2), now).unwrap();
    let Route::To { topic, partitions } = topics.find("t", now) else {
        panic!("not known");
    };
    assert_eq!((topic, partitions), (0, 2));
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
    topics.doubt(0, now);
    assert!(matches!(topics.find("t", now), Route::NotYet));
}
