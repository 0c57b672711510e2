//! Each rule of the design is left out once, and a checker of a promise that depends on it has to miss it; the same
//! seed is good with the rule in place.

#![allow(clippy::unwrap_used, clippy::expect_used)] // Clippy's own exception ends at helpers.

use std::sync::{
    Mutex,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use posthaste_engine::mutation::Mutation;
use posthaste_simulation::{Emphasis, Seed, totals::run_caught};

/// Runs of one rule at the most: with the first seeds of the table one or two do.
const SEEDS_MAX: u64 = 12;

/// How a rule that is left out shows.
struct Case {
    rule: Mutation,
    emphasis: Emphasis,
    /// The promises that it keeps.
    promises: &'static [&'static str],
    /// The first seed; when the world changes, another one of those that follow will do.
    first: u64,
}

/// What a checker said.
struct Found {
    words: String,
    seed: u64,
    tried: u64,
}

fn cases() -> Vec<Case> {
    use Emphasis::{Pooler, Retention, Usual, Zombies};
    use Mutation as Rule;
    let case = |rule, emphasis, promises, first| Case {
        rule,
        emphasis,
        promises,
        first,
    };
    // A loss shows in I10 first where somebody asks for the status before the end.
    vec![
        case(Rule::AdvanceBeforeTheAnswer, Usual, &["I1", "I10"], 1),
        case(Rule::NoEpochCheck, Zombies, &["I8"], 1),
        case(Rule::RetryOutOfOrder, Usual, &["I3"], 1),
        case(Rule::AttemptBurnedByAnOutage, Usual, &["I3", "I7"], 1),
        case(Rule::CursorPastAParkedEvent, Usual, &["I1", "I3", "I4"], 1),
        case(Rule::DeadlineByWallClock, Zombies, &["I3"], 1),
        case(Rule::ConnectionKeptOnAbort, Zombies, &["I3"], 1),
        case(Rule::EpochBeforeTheFence, Zombies, &["I3"], 1),
        case(Rule::JoinAtTheWrongHigh, Usual, &["I1", "I4"], 1),
        case(Rule::IncarnationIgnored, Pooler, &["I8"], 1),
        case(Rule::FloorFromTheSamePoll, Usual, &["I1", "I10"], 1),
        case(Rule::StragglerTakesTheNewFloor, Usual, &["I1", "I10"], 1),
        case(Rule::CoverageMissing, Usual, &["I1", "I10"], 1),
        case(Rule::FloorBeforeTheLock, Retention, &["I1", "I10"], 1),
        case(Rule::SecondAfterAFailure, Usual, &["I3"], 1),
        case(Rule::TruncationUnchecked, Retention, &["I1", "I10"], 1),
        case(Rule::SuppressedByPosition, Usual, &["I1", "I10"], 1),
    ]
}

fn find(case: &Case) -> Option<Found> {
    for tried in 1..=SEEDS_MAX {
        let number = case.first + tried - 1;
        let sound = Seed {
            emphasis: case.emphasis,
            ..Seed::new(number)
        };
        let broken = Seed {
            leave_out: Some(case.rule),
            ..sound
        };
        let promise = |wrong: &str| wrong.split(':').next().unwrap_or_default().to_owned();
        let mut wrong = run_caught(broken).violations.into_iter();
        let Some(words) = wrong.find(|wrong| case.promises.contains(&&*promise(wrong))) else {
            continue;
        };
        let violations = run_caught(sound).violations;
        assert_eq!(violations, [""; 0], "not the rule: {}", sound.command());
        return Some(Found {
            words,
            seed: number,
            tried,
        });
    }
    None
}

#[test]
fn every_rule_that_is_left_out_is_missed() {
    let cases = cases();
    for rule in Mutation::ALL {
        assert!(cases.iter().any(|case| case.rule == rule), "{rule:?}");
    }
    let (next, passed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some(case) = cases.get(next.fetch_add(1, Relaxed)) {
            let began = std::time::Instant::now();
            match find(case) {
                Some(Found { words, seed, tried }) => {
                    let words: String = words.chars().take(90).collect();
                    println!(
                        "{:<26} {:<9} seed {seed:>4}, {tried} tried, {:>5.1} s  {words}",
                        format!("{:?}", case.rule),
                        format!("{:?}", case.emphasis),
                        began.elapsed().as_secs_f64(),
                    );
                }
                None => passed.lock().unwrap().push(case.rule),
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        for worker in workers {
            if let Err(panic) = worker.join() {
                std::panic::resume_unwind(panic);
            }
        }
    });
    let passed = passed.into_inner().unwrap();
    assert!(passed.is_empty(), "nobody missed {passed:?}");
}
