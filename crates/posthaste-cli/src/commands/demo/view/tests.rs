use super::*;

#[test]
fn pictures_have_one_width() {
    for done in [0, 1, 50, 100, 200] {
        assert_eq!(bar(done, 100).chars().count(), BAR);
    }
    let values = VecDeque::from([0, 50, 100, 1_000]);
    assert_eq!(curve(&values).chars().count(), CURVE);
    assert!(curve(&values).starts_with("▁▁▁█"));
}

#[test]
fn the_median_is_that_of_the_time_between() {
    let mut after = vec![0; LATENCY_BUCKETS_MICROS.len() + 1];
    assert_eq!(median(&[], &after), None);
    after[0] = 100;
    let before = after.clone();
    after[4] = 3;
    after[6] = 2;
    assert_eq!(median(&before, &after).as_deref(), Some("<= 5 ms"));
    assert_eq!(median(&[], &after).as_deref(), Some("<= 500 us"));
}
