use super::*;

fn layout(partitions: usize, leaderless: &[usize]) -> TopicLayout {
    TopicLayout {
        partitions,
        leaderless: Arc::new(leaderless.iter().copied().collect()),
        leaders: Arc::default(),
    }
}

fn names(questions: &[Question]) -> (Vec<&str>, usize) {
    let mut by_name = Vec::new();
    let mut all = 0;
    for question in questions {
        match question {
            Question::ByName(name) => by_name.push(&**name),
            Question::All(names) => all += names.len(),
        }
    }
    (by_name, all)
}

fn refusal(directory: &Directory, name: &str, now: Instant) -> (RejectionKind, String) {
    match directory.answer(name, now) {
        Answer::Refused(Outcome::Rejected(why)) => (why.kind, why.reason),
        _ => panic!("{name} is not refused"),
    }
}

#[test]
fn names_that_no_broker_takes_are_refused_here() {
    let directory = Directory::default();
    let now = Instant::now();
    for name in ["", ".", "..", "a b", "a/b", "é", &"t".repeat(250)] {
        assert_eq!(refusal(&directory, name, now).0, RejectionKind::Invalid);
    }
    assert!(directory.questions(now).is_empty());
    for name in ["a", "A.b_c-9", "...", &"t".repeat(249)] {
        let answer = directory.answer(name, now);
        assert!(matches!(answer, Answer::NotYet), "{name}");
    }
}

#[test]
fn a_refusal_is_remembered_for_a_moment() {
    let directory = Directory::default();
    let now = Instant::now();
    assert!(matches!(directory.answer("t", now), Answer::NotYet));
    assert_eq!(names(&directory.questions(now)), (vec!["t"], 0));
    assert!(matches!(directory.answer("t", now), Answer::NotYet));
    assert!(directory.questions(now).is_empty());
    let found = Err(Code::UnknownTopicOrPartition);
    directory.answered("t", found, now).unwrap();
    let (kind, reason) = refusal(&directory, "t", now);
    assert_eq!(kind, RejectionKind::Unroutable);
    assert!(reason.contains("topic `t` does not exist; create it"));
    assert!(directory.questions(now).is_empty());
    let later = now + REFUSED_FOR;
    assert!(matches!(directory.answer("t", later), Answer::NotYet));
    assert_eq!(names(&directory.questions(later)), (vec!["t"], 0));
}

#[test]
fn a_topic_that_lacks_a_leader_is_asked_for_again_soon() {
    let directory = Directory::default();
    let now = Instant::now();
    let answer = |leaderless: &[usize]| {
        directory.answer("t", now);
        directory.questions(now);
        directory
            .answered("t", Ok(layout(3, leaderless)), now)
            .unwrap();
        let Answer::Known(found, until) = directory.answer("t", now) else {
            panic!("not known");
        };
        assert_eq!(found, layout(3, leaderless));
        directory.forget("t");
        until
    };
    assert_eq!(answer(&[0, 2]), now + LEADERLESS_FOR);
    assert_eq!(answer(&[]), now + KNOWN_FOR);
}

#[test]
fn a_topic_in_doubt_is_asked_for_first_and_believed_where_nobody_answers() {
    let directory = Directory::default();
    let now = Instant::now();
    let is_known = |name| matches!(directory.answer(name, now), Answer::Known(..));
    for name in ["a", "b"] {
        directory.answer(name, now);
        directory.questions(now);
        directory.answered(name, Ok(layout(1, &[])), now).unwrap();
    }
    directory.doubt_leaders();
    assert!(!is_known("a") && !is_known("b"));
    assert_eq!(names(&directory.questions(now)).0, ["a", "b"]);
    directory.answered("a", Ok(layout(1, &[0])), now).unwrap();
    assert!(is_known("a") && !is_known("b"));
    let failed = Err(Code::OperationTimedOut);
    directory.answered("b", failed, now).unwrap();
    assert!(is_known("b"));
}

#[test]
fn many_topics_are_asked_for_at_once_and_the_missing_ones_by_name_behind() {
    let directory = Directory::default();
    let now = Instant::now();
    let all: Vec<String> = (0..40).map(|n| format!("t{n}")).collect();
    for name in &all {
        assert!(matches!(directory.answer(name, now), Answer::NotYet));
    }
    let questions = directory.questions(now);
    let (by_name, together) = names(&questions);
    assert_eq!((by_name.len(), together), (BY_NAME_MAX, 32));
    let asked = questions.iter().find_map(|question| match question {
        Question::All(names) => Some(names),
        Question::ByName(_) => None,
    });
    let shown = HashMap::from([("t39".into(), Ok(layout(3, &[])))]);
    directory.all_answered(asked.unwrap(), Ok(shown), now);
    let found = directory.answer("t39", now);
    assert!(matches!(found, Answer::Known(found, _) if found.partitions == 3));
    let (kind, reason) = refusal(&directory, "t20", now);
    assert_eq!(kind, RejectionKind::Unroutable);
    assert!(reason.contains("`t20`"), "{reason}");
    // Those that were asked for by name first are still held back.
    assert!(matches!(directory.answer("t0", now), Answer::NotYet));
    let missing = || Err(Code::UnknownTopicOrPartition);
    directory.answered("t0", missing(), now).unwrap();
    // A new one goes ahead of those behind.
    directory.answer("new", now);
    assert_eq!(names(&directory.questions(now)).0, ["new"]);
    directory.answered("new", Ok(layout(1, &[])), now).unwrap();
    assert_eq!(names(&directory.questions(now)).0.len(), 1);
}

#[test]
fn a_cluster_that_does_not_list_its_topics_is_asked_by_name() {
    let directory = Directory::default();
    let now = Instant::now();
    let all: Vec<String> = (0..40).map(|n| format!("t{n}")).collect();
    all.iter()
        .for_each(|name| drop(directory.answer(name, now)));
    let questions = directory.questions(now);
    let Some(Question::All(asked)) = questions.last() else {
        panic!("not asked for all");
    };
    directory.all_answered(asked, Err(Code::OperationTimedOut), now);
    assert!(directory.questions(now).is_empty());
    directory.answered("t0", Ok(layout(1, &[])), now).unwrap();
    assert_eq!(names(&directory.questions(now)), (vec!["t8"], 0));
    // An answer that failed for no fault of the topic is asked for again.
    let failed = directory.answered("t8", Err(Code::AllBrokersDown), now);
    assert_eq!(failed, Err(Code::AllBrokersDown));
    directory.answer("t8", now);
    let later = now + ALL_AGAIN_AFTER;
    assert_eq!(names(&directory.questions(later)), (vec!["t9"], 31));
}

#[test]
fn what_was_refused_is_forgotten_and_what_is_known_is_not() {
    let directory = Directory::default();
    let now = Instant::now();
    directory.answer("kept", now);
    directory.questions(now);
    directory.answered("kept", Ok(layout(1, &[])), now).unwrap();
    for n in 0..2 * TOPICS_MAX {
        let name = format!("t{n}");
        directory.answer(&name, now);
        directory.questions(now);
        let found = Err(Code::UnknownTopicOrPartition);
        directory.answered(&name, found, now).unwrap();
    }
    assert!(directory.known().topics.len() <= TOPICS_MAX);
    let kept = directory.answer("kept", now);
    assert!(matches!(kept, Answer::Known(..)));
}
