//! Each rule of the design is left out once, and a checker of a promise that depends on it has to
//! miss it; the same seed is good with the rule in place.

#![allow(clippy::unwrap_used, clippy::expect_used)] // Clippy's own exception ends at helpers.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use posthaste_engine::{
    Budget, ClaimOutcome, ClaimRequest, Claimed, HostIdentity, Leases, Ownership, Registered,
    Registration, Retention, Start, Store, Want,
    rule::{Carrier, Rule, leave_out},
};
use posthaste_simulation::{Emphasis, Seed, totals::run_caught};
use posthaste_stores::postgres::simulated::{NewEvent, Settings, SimulatedPostgres};

/// Seen where a destination is created between retention's look and its deed: too seldom for random
/// histories, so that every order of the two is run.
const OF_RETENTION: [Rule; 2] = [Rule::FloorReadUnderLock, Rule::TruncationChecksUnderLock];
/// Seen by the engine's own tests (`every_rule_of_places_and_refusals_that_is_left_out_is_missed`).
const OF_THE_ENGINE: [Rule; 9] = [
    Rule::PlaceIsHeldBack,
    Rule::ProbesRotate,
    Rule::PassedOverIsNotOvertaken,
    Rule::LongWaitLeavesWindow,
    Rule::BlockedKeysAreBounded,
    Rule::StepsOfRefusalsDouble,
    Rule::RefusedGoLast,
    Rule::SilentEventGoesAlone,
    Rule::SilentPlaceIsHeldBack,
];
const EVENTS: usize = 1_100;
/// Leaves whose rows are deleted, and leaves that are truncated.
const LEAF_BITS: [u8; 2] = [6, 10];
/// How many steps later retention begins, at the most.
const STEPS: usize = 60;

/// Runs of one rule at the most: with the first seeds of the table one or two do.
const SEEDS_MAX: u64 = 60;

/// How a rule that is left out shows.
struct Case {
    rule: Rule,
    emphasis: Emphasis,
    /// The promises that it keeps.
    promises: &'static [&'static str],
    /// The first seed; when the world changes, another one of those that follow will do.
    first: u64,
}

/// A checker's verdict.
struct Found {
    words: String,
    seed: u64,
    tried: u64,
}

fn cases() -> Vec<Case> {
    use Emphasis::{Marks, Pooler, Usual, Zombies};
    let case = |rule, emphasis, promises, first| Case {
        rule,
        emphasis,
        promises,
        first,
    };
    // A loss shows in I10 first where somebody asks for the status before the end.
    vec![
        case(Rule::CursorWaitsForAnswers, Usual, &["I1", "I10"], 1),
        case(Rule::EpochIsChecked, Zombies, &["I8"], 28),
        case(Rule::RetryKeepsItsPlace, Usual, &["I3"], 10),
        case(Rule::OutageBurnsNoAttempt, Usual, &["I7"], 1),
        case(Rule::SuspectGoesLast, Usual, &["I7"], 1),
        case(
            Rule::CursorWaitsForParkedCopy,
            Usual,
            &["I1", "I3", "I4"],
            12,
        ),
        case(Rule::DeadlineByBootClock, Zombies, &["I3"], 148),
        case(Rule::AbortEndsConnection, Zombies, &["I3"], 1),
        case(Rule::FenceBeforeEpoch, Zombies, &["I3"], 204),
        case(Rule::JoinWhereMainGroupStands, Usual, &["I1", "I4"], 137),
        case(Rule::IncarnationIsChecked, Pooler, &["I8"], 1),
        case(Rule::FloorOfEarlierPoll, Usual, &["I1", "I10"], 4),
        case(Rule::StragglerKeepsItsFloor, Usual, &["I1", "I10"], 1),
        case(Rule::MovedPartitionIsCovered, Usual, &["I1", "I10"], 1),
        case(Rule::ReceiverRefusesAfterFailure, Usual, &["I3", "I4"], 2),
        case(Rule::RepeatsSuppressedById, Usual, &["I1", "I10"], 7),
        case(Rule::StoreCallHasDeadline, Usual, &["I5"], 1),
        case(Rule::HandedOutUntilLaterRead, Marks, &["I4"], 1),
        case(Rule::BlockedKeysFillNoPage, Marks, &["I5", "I6"], 1),
        case(Rule::OneOfAKeyAtATime, Usual, &["I3"], 50),
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
        let right = |wrong: &String| case.promises.contains(&&*promise(wrong));
        let Some(words) = wrong.find(right) else {
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

/// The source files below `folder`.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files.sort();
    files
}

/// A row of the table: the files in which the rule is switched, as the code says.
fn row(rule: Rule, files: &[(String, String)], promises: &str) -> String {
    let switch = format!("left_out(Rule::{rule:?})");
    let switched: Vec<&str> = files
        .iter()
        .filter(|(_, text)| text.contains(&switch))
        .map(|(name, _)| name.as_str())
        .collect();
    let is_twin = |name: &&str| name.contains("/postgres/simulated/");
    let is_broker = |name: &&str| name.starts_with("posthaste-simulation/");
    let is_memory = |name: &&str| name.starts_with("posthaste-relay/src/memory/");
    let named = |names: Vec<&str>| -> String {
        let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
        names.join(", ")
    };
    let of = |is: &dyn Fn(&&str) -> bool| -> Vec<&str> {
        switched.iter().copied().filter(|name| is(name)).collect()
    };
    let is_elsewhere = |name: &&str| is_twin(name) || is_broker(name) || is_memory(name);
    let (production, twins) = (of(&|name| !is_elsewhere(name)), of(&is_twin));
    let (brokers, memory) = (of(&is_broker), of(&is_memory));
    let mut places = Vec::new();
    for &carrier in rule.carriers() {
        let (is_switched, place) = match carrier {
            Carrier::Production => (
                !production.is_empty(),
                format!("production code: {}", named(production.clone())),
            ),
            Carrier::Statements(shipped) => (
                !twins.is_empty(),
                format!(
                    "simulated statement: the twin of {}",
                    named(shipped.to_vec())
                ),
            ),
            Carrier::MarkStore => (
                !memory.is_empty(),
                format!("memory store: {}", named(memory.clone())),
            ),
            Carrier::Broker => (
                !brokers.is_empty(),
                format!("simulated broker: {}", named(brokers.clone())),
            ),
            Carrier::Model => continue,
        };
        assert!(is_switched, "{rule:?}: {carrier:?} does not switch it");
        places.push(place);
    }
    let kinds = [&production, &twins, &brokers, &memory];
    let switching = kinds.iter().filter(|files| !files.is_empty()).count();
    assert_eq!(switching, places.len(), "{rule:?}: {switched:?}");
    format!("| {} | {} | {promises} |", rule.words(), places.join("; "))
}

/// The rules that the simulation can run without.
fn rules() -> impl Iterator<Item = Rule> {
    Rule::ALL.into_iter().filter(|rule| rule.is_in_simulation())
}

#[test]
fn the_table_of_rules_says_what_is_switched_in_the_code() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut files = Vec::new();
    for folder in std::fs::read_dir(&crates).unwrap() {
        let folder = folder.unwrap();
        let of = folder.file_name().into_string().unwrap();
        if !folder.path().join("src").is_dir() {
            continue;
        }
        for file in sources(&folder.path().join("src")) {
            let within = file.strip_prefix(folder.path().join("src")).unwrap();
            let name = format!("{of}/src/{}", within.display());
            files.push((name, std::fs::read_to_string(&file).unwrap()));
        }
    }
    files.sort();
    let cases = cases();
    let row = |rule: Rule| {
        let sql = crates.join("posthaste-stores/src/postgres/sql");
        for carrier in rule.carriers() {
            if let Carrier::Statements(shipped) = carrier {
                for file in *shipped {
                    assert!(sql.join(file).is_file(), "there is no {file}");
                }
            }
        }
        let case = cases.iter().find(|case| case.rule == rule);
        let promises = case.map(|case| case.promises.join(", "));
        let promises = promises.unwrap_or_else(|| match OF_THE_ENGINE.contains(&rule) {
            true => "the engine's tests".to_owned(),
            false => "I1, every order".to_owned(),
        });
        row(rule, &files, &promises)
    };
    let rows: Vec<String> = rules().map(row).collect();
    let page = std::fs::read_to_string(crates.join("../docs/correctness.md")).unwrap();
    let head = "| rule that is left out | where | missed by |\n| --- | --- | --- |\n";
    let (_, table) = page.split_once(head).expect("the table is gone");
    let table: Vec<&str> = table.lines().take_while(|line| !line.is_empty()).collect();
    assert!(table == rows, "the table is to be\n{}", rows.join("\n"));
}

#[test]
fn every_rule_that_is_left_out_is_missed() {
    let cases = cases();
    for rule in rules() {
        let is_here = cases.iter().any(|case| case.rule == rule);
        let is_elsewhere = OF_RETENTION.contains(&rule) || OF_THE_ENGINE.contains(&rule);
        assert!(is_here || is_elsewhere, "{rule:?}");
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

async fn claim(
    database: &SimulatedPostgres,
    relay: Registered,
    destination: &str,
) -> Arc<dyn Claimed> {
    let request = ClaimRequest {
        destination,
        address: "",
        retarget: false,
        start: Start::Oldest,
        want: Want::All,
        partitions_max: 64,
        settle: Duration::ZERO,
        unsettled: Duration::ZERO,
    };
    match database.claim(relay, &request).await.unwrap() {
        ClaimOutcome::Owned(claim) => database.open(&claim).await.unwrap(),
        other => panic!("not owned: {other:?}"),
    }
}

/// Reads and stores all that is there; answers how many events.
async fn deliver(claimed: &dyn Claimed) -> usize {
    let budget = Budget {
        events: 10_000,
        bytes: 1 << 24,
    };
    let mut events = 0;
    loop {
        let page = claimed.next(budget).await.unwrap();
        events += page.events.len();
        let done = page.caught_up && page.events.is_empty() && !page.store_end;
        claimed.advance(&page.end, &[]).await.unwrap();
        if done {
            return events;
        }
    }
}

/// Retention begins so many steps after somebody has set out to create a destination, beside one
/// that has all. Answers how many of the events that were there when it was created it does not
/// get.
async fn created_beside_retention(leaf_bits: u8, steps: usize) -> usize {
    let database = SimulatedPostgres::new(Settings {
        leaf_bits,
        retention: Duration::ZERO,
        ..Settings::default()
    });
    let registration = Registration {
        name: "relay".to_owned(),
        version: String::new(),
        host: HostIdentity::default(),
        lease: Duration::from_secs(60),
    };
    let relay = database.register(&registration).await.unwrap();
    let mut writer = database.begin();
    for _ in 0..EVENTS {
        writer.emit(&NewEvent::default()).unwrap();
    }
    writer.commit().unwrap();
    deliver(&*claim(&database, relay, "first").await).await;
    let creator = database.clone();
    let creating = tokio::spawn(async move { claim(&creator, relay, "late").await });
    for _ in 0..steps {
        tokio::task::yield_now().await;
    }
    database.housekeep(None).await.unwrap();
    let late = creating.await.unwrap();
    let created = database.created();
    let late_one = created.iter().find(|created| created.0 == "late").unwrap();
    EVENTS - late_one.1.len() - deliver(&*late).await
}

fn lost_to_retention() -> usize {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    let orders = LEAF_BITS.map(|bits| (0..STEPS).map(move |steps| (bits, steps)));
    let lost = orders
        .into_iter()
        .flatten()
        .map(|(bits, steps)| runtime.block_on(created_beside_retention(bits, steps)));
    lost.sum()
}

#[test]
fn a_new_destination_misses_what_retention_took_without_its_rules() {
    assert_eq!(lost_to_retention(), 0);
    for rule in OF_RETENTION {
        let lost = leave_out(rule, lost_to_retention);
        println!("{rule:?}: {lost} events lost in {STEPS} orders of two kinds of leaves");
        assert!(lost > 0, "nobody missed {rule:?}");
    }
}
