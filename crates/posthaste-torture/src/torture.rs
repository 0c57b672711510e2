//! Lap after lap, for as long as told.

use std::time::{Duration, Instant};

use crate::{
    fixture::LapOptions,
    lap::{Lap, LapPlan},
    options::Torture,
    report::{self, LapRecord, Report},
    setting::{Setting, SinkKind},
};

/// Long enough for every fault of a setting, short enough that each setting has several turns in an
/// hour.
const LAP_MAX: Duration = Duration::from_secs(240);
/// Less is over before anything has happened.
const LAP_MIN: Duration = Duration::from_secs(15);
/// A whole run has so many laps at least, so that a short one has several too.
const LAPS: u32 = 10;
/// From this on giants are as large as they come.
const LONG: Duration = Duration::from_secs(1_800);

impl Torture {
    /// Runs laps until the time is over, and at least one.
    ///
    /// The binary under test is what [`use_program`](crate::relay::use_program) was told.
    pub async fn run(&self) -> Report {
        let (began, commit) = (Instant::now(), report::commit());
        let time = (self.time / LAPS).clamp(LAP_MIN, LAP_MAX).min(self.time);
        let mut laps = Vec::new();
        for turn in 0.. {
            let left = self.time.saturating_sub(began.elapsed());
            if turn > 0 && (self.lap.is_some() || left < time / 2) {
                break;
            }
            let number = self.lap.unwrap_or(turn);
            laps.push(self.lap(number, time.min(left)).await);
        }
        Report {
            torture: self.clone(),
            commit,
            took: began.elapsed(),
            laps,
        }
    }

    /// One lap; a panic in it is a failure of the lap.
    async fn lap(&self, number: u32, time: Duration) -> LapRecord {
        let turn = usize::try_from(number).unwrap();
        let setting = Setting::ALL[turn % Setting::ALL.len()];
        let seed = lap_seed(self.seed, number);
        let giant_events = match (self.time >= LONG, setting.sink) {
            (true, SinkKind::File) => 1_000_000,
            (true, SinkKind::Kafka | SinkKind::KafkaTransactional | SinkKind::Redis)
            | (false, SinkKind::File) => 200_000,
            // Elsewhere the events of a key are confirmed one after the other.
            (_, _) => 20_000,
        };
        let standby = setting.is_on_postgres() && has_standby(self.seed, number);
        let lap = Lap {
            setting,
            options: LapOptions {
                relays: setting.relays(),
                seed,
                giant_events,
                standby,
                writer: self.writer.clone(),
            },
            plan: LapPlan::For { time, giant: true },
        };
        let beside = if standby { ", a standby" } else { "" };
        println!("lap {number}: {setting}{beside}, seed {seed}, {time:?}");
        let run = tokio::spawn(async move { Box::pin(lap.run()).await });
        let outcome = run.await.map_err(|ended| {
            let panic = ended.into_panic();
            let words = panic.downcast_ref::<String>().cloned();
            let literal = panic.downcast_ref::<&str>().map(ToString::to_string);
            words.or(literal).unwrap_or_default()
        });
        let record = LapRecord {
            number,
            setting,
            standby,
            seed,
            outcome,
        };
        println!("{}", record.lines());
        record
    }
}

/// Every other time that a setting has its turn; the seed says which of its turns that is.
fn has_standby(seed: u64, lap: u32) -> bool {
    let settings = u32::try_from(Setting::ALL.len()).unwrap();
    // Six and five of the eleven settings on PostgreSQL have one, round by round.
    let (round, pair) = (lap / settings, lap % settings / 2);
    (seed ^ u64::from(round) ^ u64::from(pair)) & 1 == 1
}

/// So that a lap can be run alone, and neighbours have nothing in common.
fn lap_seed(seed: u64, lap: u32) -> u64 {
    seed.wrapping_add(u64::from(lap).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

#[cfg(test)]
mod tests {
    use super::{Setting, has_standby};

    #[test]
    fn each_setting_has_a_standby_every_other_time() {
        let settings = u32::try_from(Setting::ALL.len()).unwrap();
        for seed in 0..4 {
            for lap in 0..4 * settings {
                assert_ne!(has_standby(seed, lap), has_standby(seed, lap + settings));
                assert_ne!(has_standby(seed, lap), has_standby(seed + 1, lap));
            }
            let on_postgres = (0..settings).filter(|lap| {
                let setting = Setting::ALL[usize::try_from(*lap).unwrap()];
                setting.is_on_postgres() && has_standby(seed, *lap)
            });
            let count = if seed.is_multiple_of(2) { 6 } else { 5 };
            assert_eq!(on_postgres.count(), count);
        }
    }
}
