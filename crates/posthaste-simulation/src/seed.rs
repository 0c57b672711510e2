//! Which run: a number from which everything is drawn, and what is different from the usual.

use posthaste_engine::rule::Rule;

use crate::listed::listed;

/// Which run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seed {
    /// Everything is drawn from it.
    pub number: u64,
    /// Print each step.
    pub print: bool,
    /// Faults that happen more often than usual, or not at all.
    pub emphasis: Emphasis,
    /// How the relays' time goes.
    pub time: Time,
    /// A rule that is left out: the run is to fail.
    pub leave_out: Option<Rule>,
}

listed! {
    /// Faults that happen more often than usual, or not at all. Some show only where others are
    /// absent.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
    pub enum Emphasis {
        /// Nothing.
        #[default]
        Usual,
        /// Relays stand still for longer than their lease, statements and bytes are long under way,
        /// the brokers fence by time alone; and nobody stands still before a write, so that each
        /// repeat must be a contiguous replay.
        Zombies,
        /// A pooler stands before the database: relays do not notice when it crashes but by what
        /// they read.
        Pooler,
        /// Events are kept for a second, and destinations come late, just when what is past its
        /// time is removed.
        Retention,
        /// Relays share one destination of a store in memory, and come, go and lose their ways; the
        /// broker fences by time alone, and nobody stands still before a write.
        Sharing,
        /// The store in memory marks finished events.
        Marks,
    }
}

listed! {
    /// How the clocks of the relays go, and how long a relay waits for the bytes of a lane that is
    /// gone.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub enum Time {
        /// The seed draws whether clocks drift and whether they are set.
        #[default]
        Drawn,
        /// The clocks are right.
        Right,
        /// Every other clock runs too fast by one percent, the others too slow.
        Drifts,
        /// Clocks are set forth and back by minutes.
        IsSet,
        /// The clocks are right, and there is no settle time: late bytes may shuffle repeats.
        WithoutSettleTime,
    }
}

impl Seed {
    /// The run of this number.
    #[must_use]
    pub fn new(number: u64) -> Self {
        Self {
            number,
            print: false,
            emphasis: Emphasis::Usual,
            time: Time::Drawn,
            leave_out: None,
        }
    }

    /// The command that replays it.
    #[must_use]
    pub fn command(self) -> String {
        let mut command = format!(
            "cargo run --release -p posthaste-simulation -- --seed {} --trace",
            self.number
        );
        if self.emphasis != Emphasis::Usual {
            command.push_str(&format!(" --emphasis {:?}", self.emphasis));
        }
        if self.time != Time::Drawn {
            command.push_str(&format!(" --time {:?}", self.time));
        }
        if let Some(rule) = self.leave_out {
            command.push_str(&format!(" --leave-out {rule:?}"));
        }
        command
    }
}
