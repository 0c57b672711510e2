//! The `main` of a test that runs a suite (`harness = false`), and the time budget of each row.
//!
//! A row may take a certain time on two idle processors, from its first case on to its last. Tests
//! seldom have the machine to themselves, so the time is measured as `load` says: a second counts
//! less while more tasks want to run than there are processors. A row over its budget is told, with
//! its slowest cases; one far over it fails the run.

mod load;

use std::{
    env,
    num::NonZero,
    process::ExitCode,
    sync::{Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use libtest_mimic::{Arguments, Trial};

use load::Load;

/// Options whose value may be an argument of its own.
const WITH_VALUE: [&str; 6] = [
    "--color",
    "--format",
    "--logfile",
    "--skip",
    "--test-threads",
    "-Z",
];
/// Tests that run at a time, unless an argument says it: they wait for servers and time-outs more
/// than they compute.
const TESTS_PER_PROCESSOR: usize = 2;
/// The exit code of failed tests.
const FAILED: u8 = 101;
/// How much slower a machine may be than the one that the budgets were measured on: a disk may be
/// slow, and nothing tells.
const SLOWER: u32 = 3;
/// How many cases a row over its budget names.
const SLOWEST: usize = 5;

static TIMES: Mutex<Vec<Time>> = Mutex::new(Vec::new());

/// When a case ran.
#[derive(Debug, Clone)]
struct Time {
    row: &'static str,
    case: &'static str,
    budget: Duration,
    from: Instant,
    to: Instant,
}

/// Notes a case's time when it is dropped.
#[derive(Debug)]
pub(crate) struct Timed {
    row: &'static str,
    case: &'static str,
    budget: Duration,
    from: Instant,
}

/// Counts the time from here on against the row's budget.
pub(crate) fn timed(row: &'static str, case: &'static str, budget: Duration) -> Timed {
    Timed {
        row,
        case,
        budget,
        from: Instant::now(),
    }
}

impl Drop for Timed {
    fn drop(&mut self) {
        let &mut Self {
            row,
            case,
            budget,
            from,
        } = self;
        let time = Time {
            row,
            case,
            budget,
            from,
            to: Instant::now(),
        };
        let mut times = TIMES.lock().unwrap_or_else(PoisonError::into_inner);
        times.push(time);
    }
}

/// Runs the cases of rows, then other tests, as the arguments of the program say, and holds the
/// rows to their budgets.
#[must_use]
pub fn run(mut cases: Vec<Trial>, mut others: Vec<Trial>) -> ExitCode {
    let (options, filters) = split(env::args());
    let mut arguments = Arguments::from_iter(options);
    if !filters.is_empty() {
        let exact = arguments.exact;
        for trials in [&mut cases, &mut others] {
            trials.retain(|trial| is_wanted(trial.name(), &filters, exact));
        }
    }
    let processors = thread::available_parallelism().map_or(1, NonZero::get);
    arguments
        .test_threads
        .get_or_insert(TESTS_PER_PROCESSOR * processors);
    let has_others = !others.is_empty();
    let load = Load::watch();
    let mut has_failed = libtest_mimic::run(&arguments, cases).has_failed();
    let load = load.end();
    if has_others {
        has_failed |= libtest_mimic::run(&arguments, others).has_failed();
    }
    let times = TIMES.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let mut over = false;
    for row in rows(&times) {
        let (told, is_over) = judged(&row, &load);
        println!("{told}");
        over |= is_over;
    }
    match over || has_failed {
        true => ExitCode::from(FAILED),
        false => ExitCode::SUCCESS,
    }
}

/// Options, and filters: the standard harness takes several, and `libtest_mimic` only one.
fn split(arguments: impl Iterator<Item = String>) -> (Vec<String>, Vec<String>) {
    let (mut options, mut filters) = (Vec::new(), Vec::new());
    for (at, argument) in arguments.enumerate() {
        let is_value = options
            .last()
            .is_some_and(|last: &String| WITH_VALUE.contains(&last.as_str()));
        if at == 0 || is_value || argument.starts_with('-') {
            options.push(argument);
        } else {
            filters.push(argument);
        }
    }
    (options, filters)
}

fn is_wanted(name: &str, filters: &[String], exact: bool) -> bool {
    let mut filters = filters.iter();
    filters.any(|filter| name == filter || !exact && name.contains(filter))
}

/// The times of each row, in the order in which the rows began.
fn rows(times: &[Time]) -> Vec<Vec<Time>> {
    let mut rows: Vec<Vec<Time>> = Vec::new();
    let mut times = times.to_vec();
    times.sort_by_key(|time| time.from);
    for time in times {
        match rows.iter_mut().find(|row| row[0].row == time.row) {
            Some(row) => row.push(time),
            None => rows.push(vec![time]),
        }
    }
    rows
}

/// A line about a row, and whether it is further over its budget than a slow machine explains.
fn judged(row: &[Time], load: &load::Record) -> (String, bool) {
    let (name, budget) = (row[0].row, row[0].budget);
    let spans = together(row);
    let by_the_clock: Duration = spans.iter().map(|(from, to)| *to - *from).sum();
    let Some(idle) = spans.iter().map(|span| load.idle_time(*span)).sum() else {
        let told = format!("row {name}: {by_the_clock:.1?}; no load known, no budget");
        return (told, false);
    };
    let idle: Duration = idle;
    let figures = format!("{idle:.1?} of {budget:?} ({by_the_clock:.1?} by the clock)");
    if idle <= budget {
        return (format!("row {name}: {figures}"), false);
    }
    let mut cases: Vec<_> = row
        .iter()
        .map(|time| (load.idle_time((time.from, time.to)), time.case))
        .collect();
    cases.sort_unstable_by(|one, other| other.cmp(one));
    let slowest: Vec<_> = cases[..cases.len().min(SLOWEST)]
        .iter()
        .map(|(took, case)| format!("    {:.1?} {case}", took.unwrap_or_default()))
        .collect();
    let told = format!(
        "row {name} is over its time budget: {figures}. Slowest cases:\n{}",
        slowest.join("\n")
    );
    (told, idle > budget * SLOWER)
}

/// The times in which at least one of the cases ran. They are in the order of their beginnings.
fn together(row: &[Time]) -> Vec<(Instant, Instant)> {
    let mut spans: Vec<(Instant, Instant)> = Vec::new();
    for time in row {
        match spans.last_mut() {
            Some((_, to)) if time.from <= *to => *to = (*to).max(time.to),
            _ => spans.push((time.from, time.to)),
        }
    }
    spans
}

#[cfg(test)]
mod tests {
    use super::{Time, is_wanted, judged, load::Record, rows, split, together};
    use std::time::{Duration, Instant};

    fn time(row: &'static str, case: &'static str, start: Instant, seconds: [u64; 2]) -> Time {
        let [from, to] = seconds.map(|seconds| start + Duration::from_secs(seconds));
        let budget = Duration::from_secs(10);
        Time {
            row,
            case,
            budget,
            from,
            to,
        }
    }

    #[test]
    fn several_filters_choose_what_any_of_them_chooses() {
        let words = ["suite", "a::", "--test-threads", "4", "--exact", "b::"];
        let (options, filters) = split(words.map(str::to_owned).into_iter());
        assert_eq!(options, ["suite", "--test-threads", "4", "--exact"]);
        assert_eq!(filters, ["a::", "b::"]);
        for (name, exact, wanted) in [
            ("a::case", false, true),
            ("b::case", false, true),
            ("c::case", false, false),
            ("a::case", true, false),
            ("b::", true, true),
        ] {
            assert_eq!(is_wanted(name, &filters, exact), wanted, "{name} {exact}");
        }
    }

    /// Cases that ran beside each other count once, and time between them not at all.
    #[test]
    fn a_row_takes_the_time_in_which_its_cases_ran() {
        let start = Instant::now();
        let times = [
            time("b", "late", start, [9, 12]),
            time("a", "first", start, [0, 4]),
            time("b", "early", start, [1, 2]),
            time("a", "beside", start, [1, 3]),
            time("a", "after", start, [4, 6]),
        ];
        let rows = rows(&times);
        let names: Vec<_> = rows.iter().map(|row| row[0].row).collect();
        assert_eq!(names, ["a", "b"]);
        let took = |row| together(row).iter().map(|(a, b)| *b - *a).sum::<Duration>();
        assert_eq!(took(&rows[0]), Duration::from_secs(6));
        assert_eq!(took(&rows[1]), Duration::from_secs(4));
    }

    #[test]
    fn a_row_over_its_budget_names_its_slowest_cases() {
        let start = Instant::now();
        let row = [
            time("a", "quick", start, [0, 1]),
            time("a", "slow", start, [1, 9]),
            time("a", "last", start, [9, 12]),
        ];
        let (told, is_over) = judged(&row, &Record::of(start, &[(12, 1.0)]));
        assert!(!is_over, "{told}");
        let cases: Vec<_> = told.lines().skip(1).map(str::trim).collect();
        assert_eq!(cases, ["8.0s slow", "3.0s last", "1.0s quick"]);
        let far = [time("a", "slow", start, [0, 31])];
        let (told, is_over) = judged(&far, &Record::of(start, &[(31, 1.0)]));
        assert!(is_over, "{told}");
        // The machine had twice as much to do as it could.
        let (told, is_over) = judged(&row, &Record::of(start, &[(12, 0.5)]));
        assert!(!is_over && told.lines().count() == 1, "{told}");
        assert!(told.contains("6.0s of 10s (12.0s by the clock)"), "{told}");
        let (told, is_over) = judged(&row, &Record::default());
        assert!(!is_over && told.contains("no load known"), "{told}");
    }
}
