//! How busy the machine is, whoever keeps it busy, and what a span of time would have been on an
//! idle one.
//!
//! Linux tells how many tasks run or want to, how many wait for a disk, and which part of the
//! processors' time a hypervisor gave to others. With twice as many tasks as processors, each goes
//! forward half as fast: a second of that counts as half a second. A wait for a clock is counted
//! too low in this way, never too high: a busy machine fails no test.

use std::{
    fs,
    num::NonZero,
    sync::mpsc::{self, RecvTimeoutError, Sender},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

const SAMPLED_EACH: Duration = Duration::from_millis(100);

/// A thread that samples the load.
#[derive(Debug)]
pub(super) struct Load {
    end: Sender<()>,
    thread: JoinHandle<Record>,
}

/// How fast time went, sample by sample.
#[derive(Debug, Default)]
pub(super) struct Record {
    /// Ends of intervals, the first one's beginning before them; seconds of an idle machine up to
    /// there.
    until: Vec<(Instant, f64)>,
}

/// A reading of `/proc/stat`. Times are sums since the machine's start.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Sample {
    /// Tasks that run, want to, or wait for a disk.
    tasks: f64,
    /// Processor time, of everybody and nobody.
    total: f64,
    /// The part of it that other machines had.
    stolen: f64,
}

impl Load {
    pub(super) fn watch() -> Self {
        let (end, ended) = mpsc::channel();
        // The thread may begin later than the first test: this sample is not left to it.
        let (began, first) = (Instant::now(), sample());
        let thread = thread::spawn(move || {
            let processors = thread::available_parallelism().map_or(1, NonZero::get);
            let mut record = Record::default();
            let Some(mut before) = first else {
                return record;
            };
            record.until.push((began, 0.0));
            while ended.recv_timeout(SAMPLED_EACH) == Err(RecvTimeoutError::Timeout) {
                let Some(now) = sample() else { break };
                record.add(Instant::now(), speed(before, now, processors));
                before = now;
            }
            if let Some(now) = sample() {
                record.add(Instant::now(), speed(before, now, processors));
            }
            record
        });
        Self { end, thread }
    }

    pub(super) fn end(self) -> Record {
        // Nobody receives it where the system tells no load.
        let _ = self.end.send(());
        self.thread.join().expect("sample the load")
    }
}

impl Record {
    fn add(&mut self, now: Instant, speed: f64) {
        if let Some(&(before, seconds)) = self.until.last() {
            let seconds = seconds + (now - before).as_secs_f64() * speed;
            self.until.push((now, seconds));
        }
    }

    /// The span's length on an idle machine. None where the load is not known.
    pub(super) fn idle_time(&self, (from, to): (Instant, Instant)) -> Option<Duration> {
        let seconds = self.seconds_at(to)? - self.seconds_at(from)?;
        Some(Duration::from_secs_f64(seconds.max(0.0)))
    }

    fn seconds_at(&self, at: Instant) -> Option<f64> {
        let next = self.until.partition_point(|(until, _)| *until <= at);
        let Some(&(until, seconds)) = self.until.get(next) else {
            return self.until.last().map(|last| last.1);
        };
        let &(before, seconds_before) = self.until.get(next.checked_sub(1)?)?;
        let part = (at - before).as_secs_f64() / (until - before).as_secs_f64();
        Some(seconds_before + (seconds - seconds_before) * part)
    }

    /// One of intervals that end at these seconds, with these speeds.
    #[cfg(test)]
    pub(super) fn of(start: Instant, intervals: &[(u64, f64)]) -> Self {
        let mut record = Self {
            until: vec![(start, 0.0)],
        };
        for (end, speed) in intervals {
            record.add(start + Duration::from_secs(*end), *speed);
        }
        record
    }
}

/// How fast a task went forward between two samples: 1 on an idle machine.
fn speed(before: Sample, now: Sample, processors: usize) -> f64 {
    let tasks = f64::midpoint(before.tasks, now.tasks);
    #[allow(
        clippy::cast_precision_loss,
        reason = "nobody has that many processors"
    )]
    let shared = (processors as f64 / tasks.max(1.0)).min(1.0);
    let total = now.total - before.total;
    let stolen = now.stolen - before.stolen;
    let ours = if total > 0.0 {
        1.0 - stolen / total
    } else {
        1.0
    };
    shared * ours.clamp(0.0, 1.0)
}

/// None on systems without `/proc/stat`.
fn sample() -> Option<Sample> {
    parsed(&fs::read_to_string("/proc/stat").ok()?)
}

fn parsed(stat: &str) -> Option<Sample> {
    let numbers = |name: &str| -> Option<Vec<f64>> {
        let line = stat.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().map(|n| n.parse().ok()).collect()
    };
    let processor = numbers("cpu ")?;
    let running = numbers("procs_running ")?.first().copied()?;
    let blocked = numbers("procs_blocked ")?.first().copied()?;
    Some(Sample {
        // Not the one that reads this.
        tasks: running - 1.0 + blocked,
        // The time of guests behind the first eight is in that of users already.
        total: processor.iter().take(8).sum(),
        stolen: processor.get(7).copied().unwrap_or(0.0),
    })
}

#[cfg(test)]
mod tests {
    use super::{Record, Sample, parsed, speed};
    use std::time::{Duration, Instant};

    #[test]
    fn what_linux_tells_is_understood() {
        let stat = "cpu  10 0 5 70 3 1 1 10 4 0\ncpu0 1 2 3\nprocs_running 4\nprocs_blocked 2\n";
        let sample = Sample {
            tasks: 5.0,
            total: 100.0,
            stolen: 10.0,
        };
        assert_eq!(parsed(stat), Some(sample));
        assert_eq!(parsed("cpu  1 2 x\n"), None);
    }

    #[test]
    fn time_counts_by_what_the_machine_had_to_do() {
        let at = |tasks, total, stolen| Sample {
            tasks,
            total,
            stolen,
        };
        for (tasks, stolen, expected) in [
            (0.0, 0.0, 1.0),
            (2.0, 0.0, 1.0),
            (4.0, 0.0, 0.5),
            (8.0, 0.0, 0.25),
            (2.0, 5.0, 0.5),
            (4.0, 5.0, 0.25),
        ] {
            let speed = speed(at(tasks, 0.0, 0.0), at(tasks, 10.0, stolen), 2);
            assert!((speed - expected).abs() < 1e-9, "{tasks} {stolen}: {speed}");
        }
    }

    #[test]
    fn spans_are_cut_out_of_the_samples() {
        let start = Instant::now();
        let at = |seconds: f64| start + Duration::from_secs_f64(seconds);
        let record = Record::of(start, &[(2, 1.0), (4, 0.5)]);
        for (from, to, expected) in [
            (0.0, 2.0, 2.0),
            (1.0, 3.0, 1.5),
            (2.0, 4.0, 1.0),
            (3.0, 9.0, 0.5),
        ] {
            let took = record.idle_time((at(from), at(to))).unwrap();
            assert!(
                (took.as_secs_f64() - expected).abs() < 1e-6,
                "{from} {to}: {took:?}"
            );
        }
        assert_eq!(Record::default().idle_time((start, at(1.0))), None);
    }
}
