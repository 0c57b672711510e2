//! The report of a run, in Markdown.

use std::{
    collections::BTreeMap,
    fmt::{self, Write},
    fs,
    process::Command,
    time::Duration,
};

use crate::{faults::Fault, lap::Outcome, options::Torture, setting::Setting};

/// How many lines a violation of a lap may fill.
const LINES_MAX: usize = 25;

/// A run.
#[derive(Debug, Clone)]
pub struct Report {
    /// The options of the run.
    pub torture: Torture,
    /// The commit that was built, as the sources were when it began.
    pub commit: String,
    /// Everything included.
    pub took: Duration,
    /// One after the other.
    pub laps: Vec<LapRecord>,
}

/// One lap of it.
#[derive(Debug, Clone)]
pub struct LapRecord {
    /// As `--lap` takes it.
    pub number: u32,
    /// Where.
    pub setting: Setting,
    /// Whether PostgreSQL had a hot standby.
    pub standby: bool,
    /// Of the lap alone.
    pub seed: u64,
    /// The result, or why it did not come to its end.
    pub outcome: Result<Outcome, String>,
}

impl LapRecord {
    /// The violations, in lines.
    #[must_use]
    pub fn violations(&self) -> Vec<String> {
        match &self.outcome {
            Ok(outcome) => outcome.violations.clone(),
            Err(why) => why.lines().map(str::to_owned).collect(),
        }
    }

    /// The setting in words, with the standby.
    fn place(&self) -> String {
        let standby = if self.standby { ", standby" } else { "" };
        format!("{}{standby}", self.setting)
    }

    /// The lap in one line and one for each violation, for who watches.
    #[must_use]
    pub fn lines(&self) -> String {
        let (number, setting) = (self.number, self.place());
        match &self.outcome {
            Ok(outcome) => {
                let (report, faults) = (&outcome.report, outcome.faults.values().sum::<u64>());
                let violations = &outcome.violations;
                let mut lines = format!(
                    "lap {number}: {setting}: {faults} faults, {} violations, {report}",
                    violations.len()
                );
                for violation in violations.iter().take(LINES_MAX) {
                    lines += &format!("\n  {violation}");
                }
                lines
            }
            Err(why) => format!("lap {number}: {setting}: {why}"),
        }
    }
}

impl Report {
    /// Whether every lap came to its end, and no promise was broken in any.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.laps.iter().all(|lap| lap.violations().is_empty())
    }

    /// How often each fault happened.
    #[must_use]
    pub fn faults(&self) -> BTreeMap<Fault, u64> {
        let mut sum = BTreeMap::new();
        for outcome in self.outcomes() {
            for (fault, times) in &outcome.faults {
                *sum.entry(*fault).or_default() += times;
            }
        }
        sum
    }

    /// Events that committed.
    #[must_use]
    pub fn committed(&self) -> u64 {
        self.sum(|outcome| outcome.report.committed)
    }

    /// Processes that were ended by `kill -9`.
    #[must_use]
    pub fn kills(&self) -> u64 {
        self.faults()
            .iter()
            .map(|(f, times)| f.kills() * times)
            .sum()
    }

    fn outcomes(&self) -> impl Iterator<Item = &Outcome> {
        self.laps.iter().filter_map(|lap| lap.outcome.as_ref().ok())
    }

    fn sum(&self, of: impl Fn(&Outcome) -> u64) -> u64 {
        self.outcomes().map(of).sum()
    }

    fn again(&self, lap: Option<u32>) -> String {
        let Torture { seed, time, .. } = &self.torture;
        let time = humantime::format_duration(*time);
        let lap = lap.map_or_else(String::new, |lap| format!(" --lap {lap}"));
        format!("posthaste-torture --for \"{time}\" --seed {seed}{lap}")
    }

    fn head(&self, f: &mut impl Write) -> fmt::Result {
        writeln!(f, "# Torture report\n")?;
        let verdict = if self.is_good() {
            "**No violation.**"
        } else if self.outcomes().any(|o| !o.violations.is_empty()) {
            "**Promises were broken**: see the end."
        } else {
            "**Not every lap came to its end**, the others broke no promise: see the end."
        };
        writeln!(f, "{verdict}\n")?;
        writeln!(f, "| | |\n| --- | --- |")?;
        let took = humantime::format_duration(Duration::from_secs(self.took.as_secs()));
        let standstills = self
            .faults()
            .iter()
            .map(|(f, times)| f.standstills() * times)
            .sum();
        let rows = [
            ("command", format!("`{}`", self.again(self.torture.lap))),
            ("commit", self.commit.clone()),
            ("machine", machine()),
            ("took", took.to_string()),
            ("events committed", grouped(self.committed())),
            ("delivered", grouped(self.sum(|o| o.report.delivered))),
            ("lost", grouped(self.sum(|o| o.report.lost))),
            ("phantoms", grouped(self.sum(|o| o.report.phantom))),
            (
                "first deliveries out of order",
                grouped(self.sum(|o| o.report.out_of_order)),
            ),
            ("repeats", grouped(self.sum(|o| o.report.duplicates))),
            (
                "skipped by the operator",
                grouped(self.sum(|o| o.skipped as u64)),
            ),
            (
                "transactions timed",
                grouped(self.sum(|o| o.experience.took.len() as u64)),
            ),
            ("kills (`kill -9`)", grouped(self.kills())),
            ("standstills (SIGSTOP)", grouped(standstills)),
            (
                "crashes that issued numbers again",
                grouped(self.sum(|o| u64::from(o.numbers_issued_again))),
            ),
            (
                "leaves of the outbox emptied",
                grouped(self.sum(|o| o.truncated_leaves)),
            ),
        ];
        for (what, value) in rows {
            writeln!(f, "| {what} | {value} |")?;
        }
        Ok(())
    }

    fn what_happened(&self, f: &mut impl Write) -> fmt::Result {
        writeln!(f, "\n## What happened\n\n| fault | times |\n| --- | ---: |")?;
        let faults = self.faults();
        for fault in Fault::ALL {
            writeln!(f, "| {fault} | {} |", faults.get(fault).unwrap_or(&0))?;
        }
        Ok(())
    }

    fn laps(&self, f: &mut impl Write) -> fmt::Result {
        writeln!(
            f,
            "\n## Laps\n\n\
             First deliveries are judged everywhere. A process that stood still, or bytes that a\n\
             network kept, may bring a repeat late where only time fences a lane. Such repeats\n\
             are counted as broken replays, and as stale if they come last of their key. With\n\
             Kafka's transactions any repeat is a violation. Commits are those of writers that do\n\
             not mean to wait, outages of the database included.\n\n\
             | lap | setting | took | faults | events | repeats (at most) | broken replays | stale \
             | commit p50 | p99 | longest | verdict |\n| ---: | --- | ---: | ---: | ---: | ---: | \
             ---: | ---: | ---: | ---: | ---: | --- |"
        )?;
        for lap in &self.laps {
            let (number, setting) = (lap.number, lap.place());
            let Ok(outcome) = &lap.outcome else {
                writeln!(
                    f,
                    "| {number} | {setting} | | | | | | | | | | did not end |"
                )?;
                continue;
            };
            let report = &outcome.report;
            let verdict = if outcome.violations.is_empty() {
                "good"
            } else {
                "**broken**"
            };
            writeln!(
                f,
                "| {number} | {setting} | {} s | {} | {} | {} ({}) | {} | {} | {} | {} | {} | \
                 {verdict} |",
                outcome.took.as_secs(),
                outcome.faults.values().sum::<u64>(),
                grouped(report.committed),
                grouped(report.duplicates),
                grouped(outcome.repeats_max),
                report.broken_replays,
                report.stale_last,
                milliseconds(quantile(&outcome.experience.took, 0.5)),
                milliseconds(quantile(&outcome.experience.took, 0.99)),
                milliseconds(quantile(&outcome.experience.took, 1.0)),
            )?;
        }
        Ok(())
    }

    fn not_good(&self, f: &mut impl Write) -> fmt::Result {
        for lap in &self.laps {
            let violations = lap.violations();
            if violations.is_empty() {
                continue;
            }
            writeln!(f, "\n## Lap {}\n\n```text", lap.number)?;
            for line in violations.iter().take(LINES_MAX) {
                writeln!(f, "{line}")?;
            }
            if let left_out @ 1.. = violations.len().saturating_sub(LINES_MAX) {
                writeln!(f, "and {left_out} more")?;
            }
            let again = self.again(Some(lap.number));
            writeln!(f, "```\n\nOnce more: `{again}`")?;
        }
        Ok(())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.head(f)?;
        self.what_happened(f)?;
        self.laps(f)?;
        self.not_good(f)
    }
}

/// In groups of three digits.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

fn quantile(times: &[Duration], part: f64) -> Duration {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let place = (1..=sorted.len()).find(|place| *place as f64 >= part * sorted.len() as f64);
    place.map_or(Duration::ZERO, |place| sorted[place - 1])
}

fn milliseconds(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1_000.0)
}

/// The commit that was built, as far as the folder of the sources tells.
pub(crate) fn commit() -> String {
    let git = |args: &[&str]| {
        let output = Command::new("git")
            .args(args)
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .output();
        let good = output.ok().filter(|output| output.status.success());
        good.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    match (
        git(&["rev-parse", "--short=12", "HEAD"]),
        git(&["status", "--porcelain"]),
    ) {
        (Some(commit), Some(changes)) if changes.is_empty() => commit,
        (Some(commit), _) => format!("{commit}, with changes"),
        (None, _) => "unknown".to_owned(),
    }
}

fn machine() -> String {
    let processors = std::thread::available_parallelism().map_or(0, usize::from);
    let file = |name| fs::read_to_string(name).unwrap_or_default();
    let field = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name));
        let value = line.and_then(|line| line.split_once(':'));
        value.map_or_else(
            || "unknown".to_owned(),
            |(_, value)| value.trim().to_owned(),
        )
    };
    let processor = field(&file("/proc/cpuinfo"), "model name");
    let memory = field(&file("/proc/meminfo"), "MemTotal");
    let system = file("/proc/sys/kernel/osrelease");
    format!(
        "{processors} x {processor}, {memory}, Linux {}",
        system.trim()
    )
}

#[cfg(test)]
mod tests;
