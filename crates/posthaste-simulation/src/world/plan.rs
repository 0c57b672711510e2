//! The draws of the seed for the whole run.

use std::time::Duration;

use posthaste_engine::{DeliveryPolicy, KeyOrder, OnDead, OrderBy, RejectionKind};
use posthaste_relay::memory::MemoryMode;

use crate::{
    broker::{BadKey, Kind, NETWORK},
    checkers::{ALONE_MIN, Rules},
    process::{LEASE, SETTLE, window},
    seed::{Emphasis, Seed, Time},
};

/// Clocks that drift run so much too fast, or too slow.
const DRIFT: f64 = 0.01;

/// Which database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Engine {
    Memory(MemoryMode),
    Postgres,
}

/// The draws of the seed for the whole run.
pub(super) struct Plan {
    /// The seed's.
    number: u64,
    pub(super) engine: Engine,
    pub(super) kinds: Vec<Kind>,
    /// Clocks of relays are set forth and back.
    pub(super) steps: bool,
    pub(super) drift: f64,
    /// For how long a relay waits before bytes of a lane that is gone are sent again.
    pub(super) settle: Duration,
    pub(super) policy: DeliveryPolicy,
    pub(super) lasts: Duration,
    pub(super) emphasis: Emphasis,
}

impl Plan {
    pub(super) fn draw(seed: Seed) -> Self {
        use rand::{Rng, SeedableRng, rngs::SmallRng};
        // Of its own, since the trace has to know the rules first.
        let mut dice = SmallRng::seed_from_u64(seed.number ^ 0x5eed);
        let places = if dice.random_range(0..3) == 0 { 2 } else { 1 };
        let kinds = (0..places).map(|_| Kind::ALL[dice.random_range(0..Kind::ALL.len())]);
        Self {
            number: seed.number,
            kinds: kinds.collect(),
            engine: match dice.random_range(0..8) {
                0 => Engine::Memory(MemoryMode::Log),
                1 => Engine::Memory(MemoryMode::Mark),
                _ => Engine::Postgres,
            },
            steps: dice.random_range(0..4) == 0,
            drift: [0.0, DRIFT][dice.random_range(0..2)],
            settle: SETTLE,
            policy: DeliveryPolicy {
                attempts: Some(dice.random_range(2..5)),
                on_dead: match dice.random_range(0..3) {
                    0 => OnDead::Skip,
                    _ => OnDead::Block,
                },
            },
            lasts: Duration::from_secs(dice.random_range(30..110)),
            emphasis: seed.emphasis,
        }
        .emphasised(seed.number)
        .timed(seed.time)
    }

    fn timed(mut self, time: Time) -> Self {
        if time != Time::Drawn {
            self.steps = time == Time::IsSet;
            self.drift = if time == Time::Drifts { DRIFT } else { 0.0 };
        }
        if time == Time::WithoutSettleTime {
            self.settle = Duration::ZERO;
        }
        self
    }

    /// A relay whose clock was set back waits longer for a moment.
    fn set_back(&self) -> Duration {
        Duration::from_secs(if self.steps { 2_000 } else { 0 })
    }

    /// How long an event of a healthy key may take at a healthy destination beside one that does
    /// so. One that ends its connection does so some times in each of its attempts, and then the
    /// next lane waits for a while; over one that hangs, an answer is waited for, too.
    pub(super) fn delay_beside(&self, bad: BadKey) -> Duration {
        let tries = ALONE_MIN * self.policy.attempts_when(RejectionKind::FailsAlone);
        match bad {
            BadKey::Refused => self.delay_max(),
            BadKey::EndsTheConnection => SETTLE * 5 * tries,
            BadKey::HangsTheConnection => (SETTLE * 5 + LEASE) * tries,
        }
    }

    /// How long an event of a healthy key may take at a healthy destination.
    pub(super) fn delay_max(&self) -> Duration {
        let slow = self
            .kinds
            .iter()
            .any(|kind| kind.key_order() == KeyOrder::OneAtATime);
        Duration::from_secs(if slow { 8 } else { 5 })
    }

    /// The order that this destination keeps.
    pub(super) fn order_by(&self, place: usize) -> OrderBy {
        match (self.number + place as u64).is_multiple_of(3) {
            true => OrderBy::KeyAndTopic,
            false => OrderBy::Key,
        }
    }

    pub(super) fn rules(&self) -> Rules {
        Rules {
            places: self.kinds.len(),
            exact: self.kinds.iter().map(|kind| kind.is_exact()).collect(),
            order_by: (0..self.kinds.len())
                .map(|place| self.order_by(place))
                .collect(),
            window: window(self.emphasis) as u64,
            drain_limit: LEASE * 20 + self.set_back(),
            drain_each: NETWORK / 4,
            take_over_limit: LEASE.mul_f64(1.1) + SETTLE + Duration::from_secs(5),
        }
    }

    fn emphasised(mut self, number: u64) -> Self {
        match self.emphasis {
            Emphasis::Usual => return self,
            Emphasis::Zombies => {
                let timing = |kind: &Kind| !kind.is_exact() && *kind != Kind::Forgetful;
                self.kinds.retain(timing);
                self.kinds.push(Kind::KafkaIdempotent);
                self.kinds.truncate(2);
                self.steps = false;
            }
            Emphasis::Retention => {
                let late = [Kind::KafkaIdempotent, Kind::RabbitMq];
                self.kinds.extend(late.into_iter().cycle().take(4));
            }
            Emphasis::Pooler => {}
            Emphasis::Marks => {
                self.engine = Engine::Memory(MemoryMode::Mark);
                return self;
            }
            Emphasis::Sharing => {
                self.kinds = vec![Kind::KafkaIdempotent];
                self.engine = Engine::Memory(match number.is_multiple_of(2) {
                    true => MemoryMode::Log,
                    false => MemoryMode::Mark,
                });
                return self;
            }
        }
        self.engine = Engine::Postgres;
        self
    }
}
