//! The output while the demo runs: a live picture on a terminal, plain lines elsewhere.

use std::{
    collections::VecDeque,
    io::{self, IsTerminal, Write},
    sync::atomic::Ordering::Relaxed,
    time::{Duration, Instant},
};

use posthaste_relay::{CountersSnapshot, LATENCY_BUCKETS_MICROS};

use super::{outage::Outage, shop::Progress};
use crate::output::{self, Style};

/// The text that remains when the picture is gone.
#[derive(Debug)]
pub(super) struct Story {
    /// Events of sales that were called off.
    pub(super) called_off: u64,
    pub(super) outage: Duration,
}

/// Rates and latencies are those of the last second.
const WINDOW: Duration = Duration::from_secs(1);
const BAR: usize = 20;
/// Steps of the backlog's curve, fifteen seconds together.
const CURVE: usize = 20;
const CURVE_STEP: Duration = Duration::from_millis(750);
const LINES: usize = 4;
/// Hides the cursor, and cuts what a narrow terminal has no room for instead of wrapping it.
const HIDE_CURSOR: &str = "\x1b[?25l\x1b[?7l";
const RESTORE: &str = "\x1b[?25h\x1b[?7h";

#[derive(Debug)]
pub(super) struct View {
    events: u64,
    live: bool,
    colours: bool,
    /// With JSON on standard output, the picture goes to standard error.
    to_stderr: bool,
    began: Instant,
    samples: VecDeque<Sample>,
    curve: VecDeque<u64>,
    curve_at: Instant,
    line_at: Instant,
    drawn: bool,
    was_away: bool,
}

#[derive(Debug)]
struct Sample {
    at: Instant,
    committed: u64,
    accepted: u64,
    latency: Vec<u64>,
}

/// The numbers of one moment.
struct Now {
    committed: u64,
    called_off: u64,
    accepted: u64,
    waiting: u64,
    written_a_second: u64,
    delivered_a_second: u64,
    latency: Option<String>,
}

impl View {
    pub(super) fn new(events: u64, json: bool, store: &str) -> Self {
        let now = Instant::now();
        let terminal = if json {
            io::stderr().is_terminal()
        } else {
            io::stdout().is_terminal()
        };
        let view = Self {
            events,
            live: terminal && std::env::var("TERM").is_ok_and(|term| term != "dumb"),
            colours: terminal && !json && output::colours(),
            to_stderr: json,
            began: now,
            samples: VecDeque::new(),
            curve: VecDeque::new(),
            curve_at: now,
            line_at: now,
            drawn: false,
            was_away: false,
        };
        let title = output::paint("posthaste demo", Style::Bold, view.colours);
        let written = format!(
            "\n{title}  A shop on {store} writes orders and their events in one\n\
             transaction, and rolls one sale in ten back. The relay delivers the events to a\n\
             warehouse, which will be away for some seconds.\n\n"
        );
        // A reader that has gone away stops the demo at the next frame.
        drop(view.write(&written));
        view
    }

    /// Shows how things are.
    pub(super) fn show(
        &mut self,
        progress: &Progress,
        counted: &CountersSnapshot,
        outage: &Outage,
    ) -> io::Result<()> {
        let now = self.measure(progress, counted);
        if self.curve_at.elapsed() >= CURVE_STEP || self.curve.is_empty() {
            self.curve_at = Instant::now();
            self.curve.push_back(now.waiting);
            if self.curve.len() > CURVE {
                self.curve.pop_front();
            }
        }
        if self.live {
            return self.draw(&now, counted, outage);
        }
        let away = outage.lasts().is_some();
        if away != self.was_away {
            self.was_away = away;
            self.say(if away {
                "-- the warehouse goes away --"
            } else {
                "-- the warehouse is back --"
            })?;
        }
        if self.line_at.elapsed() >= WINDOW {
            self.line_at += WINDOW;
            return self.line(&now, counted, away);
        }
        Ok(())
    }

    fn measure(&mut self, progress: &Progress, counted: &CountersSnapshot) -> Now {
        let committed = progress.committed.load(Relaxed);
        // The relay may be quicker to count an event than the shop.
        let accepted = counted.accepted.min(committed);
        let at = Instant::now();
        let sample = Sample {
            at,
            committed,
            accepted,
            latency: counted.latency.clone(),
        };
        while self.samples.len() > 1 && self.samples[1].at + WINDOW <= at {
            self.samples.pop_front();
        }
        let first = self.samples.front().unwrap_or(&sample);
        let seconds = at.duration_since(first.at).as_secs_f64().max(0.1);
        let now = Now {
            committed,
            called_off: progress.called_off.load(Relaxed),
            accepted,
            waiting: committed - accepted,
            written_a_second: per_second(committed - first.committed, seconds),
            delivered_a_second: per_second(accepted.saturating_sub(first.accepted), seconds),
            latency: median(&first.latency, &sample.latency),
        };
        self.samples.push_back(sample);
        now
    }

    fn draw(&mut self, now: &Now, counted: &CountersSnapshot, outage: &Outage) -> io::Result<()> {
        let paint = |text: &str, style| output::paint(text, style, self.colours);
        let mut frame = String::new();
        frame.push_str(if self.drawn { "\x1b[4A" } else { HIDE_CURSOR });
        let mut line = |name: &str, text: String| {
            frame.push_str(&format!("\x1b[2K  {:<11}{text}\n", name));
        };
        let bar = |done| paint(&bar(done, self.events), Style::Good);
        let row = |bar: &str, count, rate: Option<u64>, note: &str| {
            let rate =
                rate.map_or_else(String::new, |rate| format!("{}/s", output::thousands(rate)));
            let note = paint(note, Style::Dim);
            format!("{bar}  {:>8}  {rate:>7}  {note}", output::thousands(count))
        };
        let called_off = format!("{} rolled back", output::thousands(now.called_off));
        let rate = Some(now.written_a_second);
        line(
            "shop",
            row(&bar(now.committed), now.committed, rate, &called_off),
        );
        let p50 = now.latency.as_ref();
        let p50 = p50.map_or_else(String::new, |p50| format!("p50 {p50} from commit"));
        let rate = Some(now.delivered_a_second);
        line(
            "delivered",
            row(&bar(now.accepted), now.accepted, rate, &p50),
        );
        let style = if now.waiting > 100 {
            Style::Warn
        } else {
            Style::Plain
        };
        let curve = paint(&curve(&self.curve), style);
        line("waiting", row(&curve, now.waiting, None, ""));
        line("warehouse", self.warehouse(counted, outage));
        debug_assert_eq!(frame.matches('\n').count(), LINES);
        self.drawn = true;
        self.write(&frame)
    }

    fn warehouse(&self, counted: &CountersSnapshot, outage: &Outage) -> String {
        let paint = |text: &str, style| output::paint(text, style, self.colours);
        match outage.lasts() {
            Some(lasts) => format!(
                "{} for {:.1} s; the shop sells on, the relay keeps trying",
                paint("away", Style::Bad),
                lasts.as_secs_f64()
            ),
            None if counted.breaker == "closed" => paint("open", Style::Good),
            None if outage.is_over() => {
                format!(
                    "{}, the relay will see it at its next try",
                    paint("back", Style::Warn)
                )
            }
            None => paint("opening", Style::Dim),
        }
    }

    fn line(&self, now: &Now, counted: &CountersSnapshot, away: bool) -> io::Result<()> {
        let state = if away {
            "away"
        } else if counted.breaker == "closed" {
            "open"
        } else {
            "not reached yet"
        };
        let latency = now
            .latency
            .as_ref()
            .map_or_else(String::new, |p50| format!("  p50 {p50}"));
        self.write(&format!(
            "{:>4}s  committed {} ({}/s)  rolled back {}  delivered {} ({}/s)  waiting {}  \
             warehouse {state}{latency}\n",
            self.began.elapsed().as_secs(),
            output::thousands(now.committed),
            output::thousands(now.written_a_second),
            output::thousands(now.called_off),
            output::thousands(now.accepted),
            output::thousands(now.delivered_a_second),
            output::thousands(now.waiting),
        ))
    }

    /// Says a line beside the picture.
    pub(super) fn say(&mut self, text: &str) -> io::Result<()> {
        self.write(&format!("      {text}\n"))?;
        self.drawn = false;
        Ok(())
    }

    fn write(&self, text: &str) -> io::Result<()> {
        if self.to_stderr {
            io::stderr().lock().write_all(text.as_bytes())
        } else {
            let mut out = io::stdout().lock();
            out.write_all(text.as_bytes())?;
            out.flush()
        }
    }

    /// Gives the terminal its cursor back.
    pub(super) fn restore() {
        for (terminal, is_one) in [
            (
                &mut io::stdout() as &mut dyn Write,
                io::stdout().is_terminal(),
            ),
            (
                &mut io::stderr() as &mut dyn Write,
                io::stderr().is_terminal(),
            ),
        ] {
            if is_one {
                // A terminal that has gone away needs no cursor.
                drop(terminal.write_all(RESTORE.as_bytes()));
                drop(terminal.flush());
            }
        }
    }

    pub(super) fn story(&self, progress: &Progress, outage: Duration) -> Story {
        Story {
            called_off: progress.called_off.load(Relaxed),
            outage,
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rate for people"
)]
fn per_second(count: u64, seconds: f64) -> u64 {
    (count as f64 / seconds).round() as u64
}

fn bar(done: u64, all: u64) -> String {
    let full = usize::try_from(done * BAR as u64 / all.max(1))
        .unwrap_or(BAR)
        .min(BAR);
    format!("{}{}", "█".repeat(full), "░".repeat(BAR - full))
}

fn curve(values: &VecDeque<u64>) -> String {
    const STEPS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let highest = values.iter().copied().max().unwrap_or(0).max(100);
    let step = |value: u64| STEPS[usize::try_from(value * 7 / highest).unwrap_or(7)];
    let drawn: String = values.iter().map(|&value| step(value)).collect();
    format!("{drawn}{}", " ".repeat(CURVE - values.len()))
}

/// The bound below which half of what was delivered in between stayed.
fn median(before: &[u64], after: &[u64]) -> Option<String> {
    let counts: Vec<u64> = after
        .iter()
        .enumerate()
        .map(|(at, count)| count.saturating_sub(before.get(at).copied().unwrap_or(0)))
        .collect();
    let all: u64 = counts.iter().sum();
    let mut below = 0;
    let at = counts.iter().position(|count| {
        below += count;
        all > 0 && below * 2 >= all
    })?;
    Some(match LATENCY_BUCKETS_MICROS.get(at) {
        Some(&micros) if micros < 1_000 => format!("<= {micros} us"),
        Some(&micros) if micros < 1_000_000 => format!("<= {} ms", micros as f64 / 1_000.0),
        Some(&micros) => format!("<= {} s", micros as f64 / 1_000_000.0),
        None => "> 60 s".to_owned(),
    })
}

#[cfg(test)]
mod tests;
