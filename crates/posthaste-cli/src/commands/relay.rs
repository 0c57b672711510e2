//! `posthaste relay`: delivers until told to stop, or until drained.

mod service_manager;
mod stop;

use std::{
    io,
    path::PathBuf,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use clap::Args;
use posthaste_engine::{Backoff, DeliveryPolicy, Finding, Severity, Sink, SinkError, Start, Store};
use posthaste_relay::{
    BoundedStore, Destination, DestinationHealth, Relay as Runner, RelayError, Summary,
};
use serde_json::json;
use tracing::{info, warn};

use super::Addresses;
use crate::{
    config::{self, DestinationTuning, LogFormat, RelayConfig, RelayFlags, RelayTuning, units},
    failure::{Failure, Status},
    http,
    logging::start_logging,
    open, output,
    task::AbortOnDrop,
};
use service_manager::ServiceManager;
use stop::Stop;

#[derive(Debug, Args)]
pub(crate) struct Relay {
    #[command(flatten)]
    addresses: Addresses,
    /// The name of the destination of --to; progress belongs to the name [default: default]
    #[arg(long, value_name = "NAME")]
    destination: Option<String>,
    /// Move the destination to another kind of broker; delivered events are not sent again
    #[arg(long)]
    retarget: bool,
    /// Where a new destination starts: at the `oldest` event (the default), or `now`, behind all
    /// events of the outbox
    #[arg(long, value_name = "PLACE", value_parser = config::start)]
    start: Option<Start>,
    /// A file with destinations, routes and settings
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// End when each event that was visible at the start is accepted, parked, or blocked
    #[arg(long)]
    until_drained: bool,
    /// Give up draining after this long, with exit status 4
    #[arg(
        long, value_name = "DURATION", value_parser = units::duration,
        requires = "until_drained"
    )]
    drain_timeout: Option<Duration>,
    /// At the end, print the result as JSON on standard output
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    tuning: RelayTuning,
    #[command(flatten)]
    destination_tuning: DestinationTuning,
}

impl Relay {
    pub(crate) async fn run(self) -> Result<Status, Failure> {
        let config = config::relay(
            self.config.as_deref(),
            RelayFlags {
                from: self.addresses.from,
                to: self.addresses.to,
                destination: self.destination,
                start: self.start,
                tuning: self.tuning,
                destination_tuning: self.destination_tuning,
            },
        )?;
        start_logging(config.tuning.log.unwrap_or(LogFormat::Text), "info")?;
        let stop = Stop::listen(self.drain_timeout)?;
        let store = open::store(&config.from)?;
        // For watchers, and at the end.
        let asked: Arc<dyn Store> = Arc::new(BoundedStore::new(Arc::clone(&store)));
        if !config.routes.catch_all() {
            warn!(
                "events that no route takes are counted and left behind; add a last route without \
                 conditions, with `to` or with `drop = true`"
            );
        }
        let server = match config.tuning.http {
            Some(address) => Some(http::Server::bind(address).await?),
            None => None,
        };
        let sinks = open_sinks(&config, self.json)?;
        let destinations = destinations(&config, &sinks, self.retarget)?;
        let relay = build(&config, store, destinations, self.until_drained)?;
        let health = relay.health();
        let serving = server.map(|server| server.serve(health.clone(), Arc::clone(&asked)));
        let checks = check_sinks(&config, &sinks).await?;

        let timed_out = Arc::clone(&stop.timed_out);
        let manager = ServiceManager::new()?;
        let watchdog = manager.started(health.clone());
        let stop = async {
            stop.wait().await;
            manager.stopping().await;
        };
        let summary = relay.run(stop).await?;
        drop((serving, watchdog, checks));
        if summary.clean {
            report_end(&health.destinations(), &summary);
        }
        if self.json {
            let destinations: Vec<_> = health
                .destinations()
                .into_iter()
                .map(|DestinationHealth { name, counted, .. }| {
                    json!({
                        "name": name,
                        "accepted": counted.accepted,
                        "rejected": counted.rejected,
                        "parked": counted.parked,
                        "unrouted": counted.unrouted,
                    })
                })
                .collect();
            output::print_json(&json!({
                "drained": summary.drained,
                "clean": summary.clean,
                "destinations": destinations,
            }))?;
        }
        end(asked.as_ref(), &config, &summary, timed_out.load(Relaxed)).await
    }
}

/// The last lines of the log: what each destination was brought to.
fn report_end(destinations: &[DestinationHealth], summary: &Summary) {
    let ended = match summary.drained {
        true => "drained",
        false => "stopped",
    };
    for DestinationHealth { name, counted, .. } in destinations {
        let (accepted, parked) = (counted.accepted, counted.parked);
        info!(destination = %name, accepted, parked, "{ended}");
    }
}

/// The exit status of a run that ended in order.
async fn end(
    store: &dyn Store,
    config: &RelayConfig,
    summary: &Summary,
    timed_out: bool,
) -> Result<Status, Failure> {
    if summary.drained {
        let status = store.status().await?;
        let held = status.destinations.iter().any(|known| {
            let ours = config
                .destinations
                .iter()
                .any(|ours| ours.name == known.name);
            ours && known.parked + known.dead + known.blocked_keys > 0
        });
        return Ok(if held { Status::Parked } else { Status::Done });
    }
    if timed_out {
        eprintln!(
            "error: not drained within --drain-timeout; nothing is lost, `posthaste status` shows \
             the rest"
        );
        return Ok(Status::DrainTimeout);
    }
    if !summary.clean {
        return Err(Failure::failed(
            "stopped in mid-flight: nothing is lost, and some events will be delivered again\nfix: \
             if the database was there, give a longer --shutdown-timeout",
        ));
    }
    Ok(Status::Done)
}

fn build(
    config: &RelayConfig,
    store: Arc<dyn Store>,
    destinations: Vec<Destination>,
    until_drained: bool,
) -> Result<Runner, Failure> {
    let tuning = &config.tuning;
    let mut builder = Runner::builder(store)
        .routes(config.routes.clone())
        .until_drained(until_drained);
    if let Some(name) = &tuning.name {
        builder = builder.name(name);
    }
    if let Some(partitions) = tuning.max_partitions {
        builder = builder.partitions_max(u16::try_from(partitions).unwrap_or(u16::MAX));
    }
    // The lease first: what follows it by default is overridden afterwards.
    if let Some(lease) = tuning.lease {
        builder = builder.lease(lease);
    }
    if let Some(limit) = tuning.publish_timeout {
        builder = builder.publish_timeout(limit);
    }
    if let Some(margin) = tuning.margin {
        builder = builder.margin(margin);
    }
    if let Some(settle) = tuning.settle {
        builder = builder.settle(settle);
    }
    builder = builder.limits(|limits| {
        let set = |limit: &mut usize, value: Option<usize>| *limit = value.unwrap_or(*limit);
        set(&mut limits.window_events, tuning.window_events.map(size));
        set(&mut limits.window_bytes, tuning.window_size);
        set(&mut limits.batch_events, tuning.batch_events.map(size));
        set(&mut limits.batch_bytes, tuning.batch_size);
        limits.poll_busy = tuning.poll_busy.unwrap_or(limits.poll_busy);
    });
    if let Some(wait) = tuning.poll_idle {
        builder = builder.poll_idle(wait);
    }
    if let Some(limit) = tuning.shutdown_timeout {
        builder = builder.shutdown_timeout(limit);
    }
    for destination in destinations {
        builder = builder.destination(destination);
    }
    builder.build().map_err(Failure::from)
}

fn size(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// Opens every sink; touches nothing yet.
fn open_sinks(config: &RelayConfig, json: bool) -> Result<Vec<Arc<dyn Sink>>, Failure> {
    let open = |known: &config::Destination| {
        let sink = open::destination(known).map_err(|error| match config.destinations.len() {
            1 => error,
            _ => error.of(&format!("destination `{}`", known.name)),
        })?;
        if json && open::writes_to_stdout(&known.url) {
            return Err(Failure::usage(format!(
                "destination `{}` and --json both write to standard output\nfix: leave out --json",
                known.name
            )));
        }
        Ok(sink)
    };
    config.destinations.iter().map(open).collect()
}

/// Looks whether every sink is there. One that is away is waited for while running; one that is set
/// up wrongly, or refuses us, ends the start, while somebody is looking, unless there are others to
/// deliver to: those wait for no answer of another, so the checks go on while the relay runs.
async fn check_sinks(
    config: &RelayConfig,
    sinks: &[Arc<dyn Sink>],
) -> Result<Vec<AbortOnDrop>, Failure> {
    if let ([only], [sink]) = (&*config.destinations, sinks) {
        let name = &only.name;
        return match check_sink(name, &**sink).await {
            Err(error @ (SinkError::Denied { .. } | SinkError::Misconfigured { .. })) => {
                Err(Failure::from(error).of(&format!("destination `{name}`")))
            }
            checked => {
                warn_of_error(name, checked);
                Ok(Vec::new())
            }
        };
    }
    let checks = config.destinations.iter().zip(sinks).map(|(known, sink)| {
        let (name, sink) = (known.name.clone(), Arc::clone(sink));
        AbortOnDrop(tokio::spawn(async move {
            let checked = check_sink(&name, &*sink).await;
            warn_of_error(&name, checked);
        }))
    });
    Ok(checks.collect())
}

/// Tells of what keeps events back. Risks stay: `posthaste check` tells of them.
async fn check_sink(name: &str, sink: &dyn Sink) -> Result<(), SinkError> {
    let report = sink.check().await?;
    let findings = report.findings().iter();
    for finding in findings.filter(|found| found.severity == Severity::Stops) {
        let Finding {
            place, fault, mend, ..
        } = finding;
        warn!(destination = %name, "{place}: {fault}; {mend}");
    }
    Ok(())
}

fn warn_of_error(name: &str, checked: Result<(), SinkError>) {
    if let Err(error) = checked {
        warn!(destination = %name, "not reachable yet, will be tried again: {error}");
    }
}

fn destinations(
    config: &RelayConfig,
    sinks: &[Arc<dyn Sink>],
    retarget: bool,
) -> io::Result<Vec<Destination>> {
    let mut destinations = Vec::new();
    for (known, sink) in config.destinations.iter().zip(sinks) {
        let mut destination = Destination::new(known.name.clone(), Arc::clone(sink))
            .address(known.url.target()?)
            .order_by(known.tuning.order.unwrap_or_default())
            .start(known.start)
            .inserted(known.tuning.inserted());
        if retarget {
            destination = destination.retarget();
        }
        let (policy, retry) = (DeliveryPolicy::default(), Backoff::default());
        let tuning = &known.tuning;
        destination = destination
            .policy(DeliveryPolicy {
                attempts: tuning.attempts,
                on_dead: tuning.on_dead.unwrap_or(policy.on_dead),
            })
            .retry(Backoff {
                first: tuning.backoff.unwrap_or(retry.first),
                max: tuning
                    .backoff_max
                    .unwrap_or(retry.max.max(tuning.backoff.unwrap_or_default())),
                jitter: tuning
                    .backoff_jitter
                    .map_or(retry.jitter, |percent| f64::from(percent) / 100.0),
            });
        if let Some(topic) = &known.topic {
            destination = destination.topic(topic.clone());
        }
        if let Some(key) = &known.key {
            destination = destination.key(key.clone());
        }
        destinations.push(destination);
    }
    Ok(destinations)
}

impl From<RelayError> for Failure {
    fn from(error: RelayError) -> Self {
        match error {
            RelayError::Configuration(what) => Self::usage(what),
            RelayError::Store(error) => error.into(),
            error => Self::failed(error.to_string()),
        }
    }
}
