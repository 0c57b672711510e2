//! Figures, the bounds they are held to, and the table at the end.

use std::fmt;

/// The limit that a figure has to meet.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

#[derive(Debug)]
struct Figure {
    part: &'static str,
    name: String,
    value: f64,
    unit: &'static str,
    bound: Option<Bound>,
}

/// All figures of a run.
#[derive(Debug, Default)]
pub(crate) struct Report {
    part: &'static str,
    figures: Vec<Figure>,
}

impl Bound {
    fn is_met(self, value: f64) -> bool {
        // A value that is no number meets nothing.
        match self {
            Self::AtLeast(bound) => value >= bound,
            Self::AtMost(bound) => value <= bound,
        }
    }
}

impl Report {
    /// The figures that follow are this part's.
    pub(crate) fn begin(&mut self, part: &'static str) {
        self.part = part;
        println!("\n== {part}");
    }

    /// A figure for the reader.
    pub(crate) fn print(&mut self, name: impl Into<String>, value: f64, unit: &'static str) {
        self.add(name.into(), value, unit, None);
    }

    /// A figure that fails the run when it misses its bound.
    pub(crate) fn hold(
        &mut self,
        name: impl Into<String>,
        value: f64,
        unit: &'static str,
        bound: Bound,
    ) {
        self.add(name.into(), value, unit, Some(bound));
    }

    fn add(&mut self, name: String, value: f64, unit: &'static str, bound: Option<Bound>) {
        let figure = Figure {
            part: self.part,
            name,
            value,
            unit,
            bound,
        };
        println!("{figure}");
        self.figures.push(figure);
    }

    /// How many bounds were missed.
    pub(crate) fn missed(&self) -> usize {
        let missed = |figure: &&Figure| figure.bound.is_some_and(|b| !b.is_met(figure.value));
        self.figures.iter().filter(missed).count()
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            part,
            name,
            value,
            unit,
            bound,
        } = self;
        let digits = if *value >= 1_000.0 { 0 } else { 3 };
        write!(f, "{part:8} {name:78} {value:>12.digits$} {unit:10}")?;
        match bound {
            None => Ok(()),
            Some(bound) => {
                let verdict = if bound.is_met(*value) { "ok" } else { "MISSED" };
                match bound {
                    Bound::AtLeast(least) => write!(f, " >= {least} {verdict}"),
                    Bound::AtMost(most) => write!(f, " <= {most} {verdict}"),
                }
            }
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.figures
            .iter()
            .try_for_each(|figure| writeln!(f, "{figure}"))
    }
}

/// The value that this share of all values does not exceed; NaN of none.
pub(crate) fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let after = sorted
        .iter()
        .zip(1_u32..)
        .find(|&(_, rank)| f64::from(rank) >= share * sorted.len() as f64);
    after.map_or(f64::NAN, |(value, _)| *value)
}

/// The middle value.
pub(crate) fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// Prints what the figures depend on.
pub(crate) fn environment() {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let system = rustix::system::uname();
    println!(
        "posthaste {}, {} {} {}, {cores} cores, {}, load {}",
        env!("CARGO_PKG_VERSION"),
        system.sysname().to_string_lossy(),
        system.release().to_string_lossy(),
        system.machine().to_string_lossy(),
        processor().unwrap_or_else(|| "processor unknown".to_owned()),
        load().unwrap_or_else(|| "unknown".to_owned()),
    );
}

fn processor() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn load() -> Option<String> {
    let text = std::fs::read_to_string("/proc/loadavg").ok()?;
    let mut words = text.split(' ');
    Some(format!("{} {}", words.next()?, words.next()?))
}
