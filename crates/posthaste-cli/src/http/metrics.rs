//! `/metrics` in Prometheus' text format.

use std::{fmt, sync::Arc, time::Duration};

use posthaste_engine::{DestinationStatus, Status};
use posthaste_relay::{
    CountersSnapshot, DestinationHealth, Health, LATENCY_BUCKETS_MICROS, STANDSTILL,
};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, MetricEncoder, text},
    metrics::MetricType,
    registry::Registry,
};

use self::Number::{Seconds, Whole};

pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Every state of a breaker, so that each is a series from the start.
const BREAKER_STATES: [&str; 4] = ["closed", "half_open", "open", "waiting"];

/// All metrics. Those that need the store's numbers are left out without them.
///
/// # Errors
/// The encoder refuses something.
pub(super) fn text(health: &Health, status: Option<Arc<Status>>) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Metrics {
        destinations: health.destinations(),
        lease_left: health.lease_left(),
        status,
    }));
    let mut text = String::new();
    text::encode_registry(&mut text, &registry)?;
    Ok(text)
}

#[derive(Debug)]
struct Metrics {
    destinations: Vec<DestinationHealth>,
    lease_left: Duration,
    status: Option<Arc<Status>>,
}

impl Collector for Metrics {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut page = Page(encoder);
        self.counters(&mut page)?;
        self.latency(&mut page)?;
        self.condition(&mut page)?;
        self.relay(&mut page)?;
        match &self.status {
            Some(status) => of_store(&mut page, status),
            None => Ok(()),
        }
    }
}

impl Metrics {
    fn counters(&self, page: &mut Page<'_>) -> fmt::Result {
        type Of = fn(&CountersSnapshot) -> u64;
        let counters: [(_, _, Of); 9] = [
            ("posthaste_read_total", "Events read from the outbox", |c| {
                c.read
            }),
            (
                "posthaste_delivered_total",
                "Events that the destination has accepted",
                |c| c.accepted,
            ),
            (
                "posthaste_duplicates_total",
                "Accepted events that the destination had already, and keeps no second time",
                |c| c.duplicates,
            ),
            (
                "posthaste_rejected_total",
                "Events that the destination has refused, each attempt counted",
                |c| c.rejected,
            ),
            (
                "posthaste_put_off_total",
                "Events that the destination has put off, as for a full queue, each time counted",
                |c| c.later,
            ),
            (
                "posthaste_unavailable_total",
                "Failures of the destination that blame no event",
                |c| c.unavailable,
            ),
            (
                "posthaste_parked_total",
                "Events parked after a refusal",
                |c| c.parked,
            ),
            (
                "posthaste_unrouted_total",
                "Events that no route takes",
                |c| c.unrouted,
            ),
            (
                "posthaste_repeats_total",
                "Events sent again after a sending with an unknown result",
                |c| c.repeated,
            ),
        ];
        for (name, help, of) in counters {
            let samples = self.each(|destination| Whole(of(&destination.counted)));
            page.family(name, help, MetricType::Counter, samples)?;
        }
        Ok(())
    }

    fn latency(&self, page: &mut Page<'_>) -> fmt::Result {
        let mut metric = page.0.encode_descriptor(
            "posthaste_commit_to_accepted_seconds",
            "Time from the insert of an event (clock of the database) to its acceptance (clock of \
             the relay)",
            None,
            MetricType::Histogram,
        )?;
        let bounds = LATENCY_BUCKETS_MICROS.iter().map(|&micros| seconds(micros));
        let bounds: Vec<_> = bounds.chain([f64::INFINITY]).collect();
        for DestinationHealth { name, counted, .. } in &self.destinations {
            let counts = counted.latency.iter().copied();
            let buckets: Vec<_> = bounds.iter().copied().zip(counts).collect();
            let labels = named(name);
            metric
                .encode_family(&labels)?
                .encode_histogram::<[Label<'_>; 1]>(
                    seconds(counted.latency_sum_micros),
                    counted.latency.iter().sum(),
                    &buckets,
                    None,
                )?;
        }
        Ok(())
    }

    fn condition(&self, page: &mut Page<'_>) -> fmt::Result {
        let gauge = MetricType::Gauge;
        page.family(
            "posthaste_ready",
            &format!(
                "1 while the destination makes progress or has a good reason not to, 0 when it has \
                 stood still for {} s",
                STANDSTILL.as_secs()
            ),
            gauge,
            self.each(|destination| Whole(destination.is_ready.into())),
        )?;
        page.family(
            "posthaste_seconds_since_progress",
            "Time since the last progress, 0 while there is a good reason to stand still",
            gauge,
            self.each(|destination| Seconds(destination.since_progress)),
        )?;
        page.family(
            "posthaste_blocked_keys",
            "Keys that wait behind a parked event, as the relay that holds the destination sees it",
            gauge,
            self.each(|destination| Whole(destination.counted.blocked_keys)),
        )?;
        page.family(
            "posthaste_places_held",
            "Places of the destination, as topics or partitions, that take nothing for now, or not \
             everything yet",
            gauge,
            self.each(|destination| Whole(destination.counted.places_held as u64)),
        )?;
        let places = self.destinations.iter().flat_map(|destination| {
            // An operator wants it so: nobody is to be called.
            let held = destination.counted.places.iter();
            held.filter(|place| !place.is_paused).map(|place| {
                let labels = [
                    ("destination", destination.name.as_str()),
                    ("place", &*place.name),
                ];
                (labels, Seconds(place.held_for))
            })
        });
        page.family(
            "posthaste_place_held_seconds",
            "How long the place has taken nothing, or not everything, of the twenty that were held \
             back first",
            gauge,
            places,
        )?;
        let states = self.destinations.iter().flat_map(|destination| {
            BREAKER_STATES.map(|state| {
                let labels = [("destination", destination.name.as_str()), ("state", state)];
                let is_in_it = destination.counted.breaker == state;
                (labels, Whole(is_in_it.into()))
            })
        });
        page.family(
            "posthaste_breaker_state",
            "1 for the state in which the destination's breaker is, 0 for the others; waiting \
             while this relay does not hold the destination",
            gauge,
            states,
        )
    }

    fn relay(&self, page: &mut Page<'_>) -> fmt::Result {
        let gauge = MetricType::Gauge;
        page.family(
            "posthaste_relay_lease_seconds_left",
            "For how long this relay may continue without a renewal of its lease, 0 without a \
             lease",
            gauge,
            [(UNLABELLED, Seconds(self.lease_left))],
        )?;
        page.family(
            "posthaste_store_up",
            "Whether the database answered the last question for its numbers, at most a few \
             seconds ago",
            gauge,
            [(UNLABELLED, Whole(self.status.is_some().into()))],
        )?;
        page.family(
            "posthaste_build_info",
            "The version of this relay",
            gauge,
            [([("version", env!("CARGO_PKG_VERSION"))], Whole(1))],
        )
    }

    /// One sample for each destination of this relay.
    fn each(
        &self,
        of: impl Fn(&DestinationHealth) -> Number,
    ) -> impl Iterator<Item = ([(&'static str, &str); 1], Number)> {
        let destinations = self.destinations.iter();
        destinations.map(move |destination| (named(&destination.name), of(destination)))
    }
}

/// The numbers that only the store knows, of every destination in it: one that no relay delivers to
/// any more pins what it has not got.
fn of_store(page: &mut Page<'_>, status: &Status) -> fmt::Result {
    type Of = fn(&DestinationStatus) -> Option<Number>;
    let gauges: [(_, _, Of); 5] = [
        (
            "posthaste_pending",
            "Events that the destination has not finished; an upper bound unless \
             posthaste_pending_exact is 1",
            |d| Some(Whole(d.pending)),
        ),
        (
            "posthaste_pending_exact",
            "Whether posthaste_pending was counted",
            |d| Some(Whole(d.pending_exact.into())),
        ),
        (
            "posthaste_oldest_pending_age_seconds",
            "Age of the oldest pending event by the clock of the database, 0 when none is pending",
            |d| match d.oldest_pending_age {
                None => (d.pending == 0).then_some(Whole(0)),
                Some(age) => Some(Seconds(age)),
            },
        ),
        (
            "posthaste_parked",
            "Parked events that will be tried again",
            |d| Some(Whole(d.parked)),
        ),
        (
            "posthaste_dead",
            "Parked events whose attempts are used up: they wait for an operator",
            |d| Some(Whole(d.dead)),
        ),
    ];
    for (name, help, of) in gauges {
        let samples = status
            .destinations
            .iter()
            .filter_map(|d| Some((named(&d.name), of(d)?)));
        page.family(name, help, MetricType::Gauge, samples)?;
    }
    of_relays(page, status)?;
    let retained = &status.retained;
    let of_all = [
        (
            "posthaste_retained_bytes",
            "Bytes that the outbox takes on disk",
            Whole(status.retained_bytes),
        ),
        (
            "posthaste_retention_window_seconds",
            "For how long delivered events are kept: as init stored it, or less where the ring is \
             smaller",
            Seconds(retained.window),
        ),
        (
            "posthaste_retention_debt_events",
            "Events kept beyond the window because something pins them; an upper bound when they \
             are many",
            Whole(retained.debt_events),
        ),
    ];
    for (name, help, number) in of_all {
        page.family(name, help, MetricType::Gauge, [(UNLABELLED, number)])?;
    }
    page.family(
        "posthaste_retention_mode",
        "How delivered events are removed: by truncating leaves of the ring, or by deleting rows",
        MetricType::Gauge,
        [([("mode", retained.mode.as_str())], Whole(1))],
    )
}

/// How each destination is shared out between the relays that live.
fn of_relays(page: &mut Page<'_>, status: &Status) -> fmt::Result {
    let shares = |destination: &DestinationStatus| {
        let live = status.relays.iter().filter(|relay| relay.state == "live");
        let shares = live.flat_map(|relay| &relay.shares);
        let name = destination.name.clone();
        shares.filter(move |share| share.destination == name)
    };
    let destinations = || status.destinations.iter();
    page.family(
        "posthaste_relays",
        "Live relays that deliver to the destination or stand by",
        MetricType::Gauge,
        destinations().map(|d| (named(&d.name), Whole(shares(d).count() as u64))),
    )?;
    page.family(
        "posthaste_partitions_owned",
        "Partitions of the destination that live relays own; events of the others wait",
        MetricType::Gauge,
        destinations().map(|d| {
            let owned = shares(d).map(|share| u64::from(share.partitions)).sum();
            (named(&d.name), Whole(owned))
        }),
    )
}

type Label<'a> = (&'static str, &'a str);

const UNLABELLED: [Label<'static>; 0] = [];

fn named(destination: &str) -> [Label<'_>; 1] {
    [("destination", destination)]
}

fn seconds(micros: u64) -> f64 {
    Duration::from_micros(micros).as_secs_f64()
}

/// The value of a sample.
enum Number {
    Whole(u64),
    Seconds(Duration),
}

impl Number {
    /// As a gauge's whatever it is: the encoder of a counter would add `_total` to the samples
    /// alone, which OpenMetrics wants and Prometheus' own format does not know.
    fn encode(&self, sample: &mut MetricEncoder<'_>) -> fmt::Result {
        match self {
            Whole(number) => sample.encode_gauge(number),
            Seconds(duration) => sample.encode_gauge(&duration.as_secs_f64()),
        }
    }
}

/// The page that is being written.
struct Page<'a>(DescriptorEncoder<'a>);

impl Page<'_> {
    /// A metric with all its samples.
    fn family<'l, const LABELS: usize>(
        &mut self,
        name: &str,
        help: &str,
        kind: MetricType,
        samples: impl IntoIterator<Item = ([Label<'l>; LABELS], Number)>,
    ) -> fmt::Result {
        let mut metric = self.0.encode_descriptor(name, help, None, kind)?;
        for (labels, number) in samples {
            // Without labels there are to be no braces either.
            match LABELS {
                0 => number.encode(&mut metric)?,
                _ => number.encode(&mut metric.encode_family(&labels)?)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use posthaste_relay::{
        Destination, Relay,
        memory::{MemoryMode, MemorySink, MemoryStore},
    };

    use super::*;

    #[test]
    fn a_name_cannot_leave_its_quotes() {
        let store = Arc::new(MemoryStore::new(MemoryMode::Log));
        let destination = Destination::new("a\"} 1\n\\b", Arc::new(MemorySink::new()));
        let relay = Relay::builder(store).destination(destination).build();
        let text = text(&relay.unwrap().health(), None).unwrap();
        let read = r#"posthaste_read_total{destination="a\"} 1\n\\b"} 0"#;
        assert!(text.lines().any(|line| line == read), "{text}");
        assert!(!text.contains("posthaste_pending"), "{text}");
    }
}
