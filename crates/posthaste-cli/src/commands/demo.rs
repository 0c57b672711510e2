//! `posthaste demo`: what people see first.
//!
//! A small shop sells, each sale one transaction with its events, one sale in ten called off. The
//! relay, the real one, delivers to a file in the warehouse's directory. In the middle the
//! directory goes away for some seconds. At the end the shop's tables and the delivered file are
//! read again and compared: nothing that is claimed comes from a counter.

mod damage;
mod outage;
mod proof;
mod shop;
mod view;

use std::{
    path::{Path, PathBuf},
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use clap::Args;
use posthaste_engine::{DestinationState, Route, RouteAction, RouteMatch, Routes, Store};
use posthaste_relay::{Counters, Destination, Relay, RelayError, Summary};
use posthaste_stores::InitOptions;
use tokio::{sync::oneshot, task::JoinHandle};
use uuid::Uuid;

use crate::{
    failure::{Failure, Status},
    open, output,
    secret::SecretUrl,
};
use damage::Damage;
use outage::Outage;
use shop::{Progress, Shop};
use view::View;

#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// How many events the shop writes
    #[arg(
        long, value_name = "N", default_value_t = 10_000,
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    events: u32,
    /// Run on this database instead of an SQLite file of its own, and remove the demo's tables at
    /// the end
    #[arg(long, value_name = "URL")]
    store: Option<SecretUrl>,
    /// Keep the files, and print their paths
    #[arg(long)]
    keep: bool,
    /// Print the proof as JSON, as the last line
    #[arg(long)]
    json: bool,
    /// Damage the delivered file before it is checked, to see the check find it
    #[arg(long, hide = true)]
    damage: Option<Damage>,
}

/// Without any progress for this long something is broken, and the proof will say what is missing.
const PATIENCE: Duration = Duration::from_secs(60);
/// Often enough to look alive, too seldom to cost anything.
const TICK: Duration = Duration::from_millis(100);

/// Everything that one run has made.
struct Stage {
    run: String,
    url: SecretUrl,
    /// The run's own directory; deleted when dropped.
    directory: tempfile::TempDir,
    warehouse: PathBuf,
    file: PathBuf,
    store: Arc<dyn Store>,
}

impl Demo {
    pub(crate) async fn run(self) -> Result<Status, Failure> {
        let stage = Stage::set(self.store.clone()).await?;
        let mut shop = shop::open_shop(&stage.url, &stage.run).await?;
        shop.create().await?;
        let played = tokio::select! {
            played = self.play(&stage, shop) => played,
            _ = tokio::signal::ctrl_c() => {
                View::restore();
                Err(Failure::failed("interrupted"))
            }
        };
        let proven = match played {
            Ok(story) => self.prove(&stage, &story).await,
            Err(failure) => Err(failure),
        };
        let cleared = stage.clear(self.store.is_some(), self.keep).await;
        let status = proven?;
        cleared?;
        Ok(status)
    }

    /// Runs shop, relay and outage until everything is delivered.
    async fn play(&self, stage: &Stage, shop: Box<dyn Shop>) -> Result<view::Story, Failure> {
        let progress = Arc::new(Progress::default());
        let (relay, counters, stop) = stage.start_relay()?;
        let plan = shop::Plan {
            events: u64::from(self.events),
            topic: stage.topic(),
        };
        let mut selling = shop::sell(shop, plan, Arc::clone(&progress));
        let mut outage = Outage::new(&stage.warehouse, u64::from(self.events));
        let mut view = View::new(u64::from(self.events), self.json, stage.kind());
        let mut last_progress = (0, Instant::now());
        loop {
            tokio::time::sleep(TICK).await;
            let committed = progress.committed.load(Relaxed);
            let counted = counters.snapshot();
            outage.follow(committed)?;
            view.show(&progress, &counted, &outage)?;
            if progress.over.load(Relaxed) && outage.is_over() && counted.accepted >= committed {
                break;
            }
            if last_progress.0 != committed + counted.accepted {
                last_progress = (committed + counted.accepted, Instant::now());
            } else if last_progress.1.elapsed() > PATIENCE {
                view.say("nothing has moved for a minute; here is what arrived:")?;
                break;
            }
            if relay.is_finished() || (selling.is_finished() && !progress.over.load(Relaxed)) {
                break;
            }
        }
        View::restore();
        // The relay may have ended by itself: then its own error tells more than a closed channel.
        let _ = stop.send(());
        let summary = relay
            .await
            .map_err(|error| Failure::failed(error.to_string()))??;
        if progress.over.load(Relaxed) || selling.is_finished() {
            (&mut selling)
                .await
                .map_err(|error| Failure::failed(error.to_string()))??;
        }
        selling.abort();
        if !summary.clean {
            view.say("the relay stopped in mid-flight; some events may come again")?;
        }
        Ok(view.story(&progress, outage.lasted()))
    }

    async fn prove(&self, stage: &Stage, story: &view::Story) -> Result<Status, Failure> {
        if let Some(damage) = self.damage {
            damage.apply(&stage.file)?;
        }
        let mut shop = shop::open_shop(&stage.url, &stage.run).await?;
        let truth = shop.truth().await?;
        let proof = proof::compare(&truth, &stage.file, &stage.topic())?;
        if self.json {
            output::print_json(&proof.as_json())?;
        } else {
            output::print(&proof.report(story, output::colours()))?;
        }
        Ok(if proof.holds() {
            Status::Done
        } else {
            Status::Failure
        })
    }
}

impl Stage {
    async fn set(store: Option<SecretUrl>) -> Result<Self, Failure> {
        let directory = tempfile::Builder::new()
            .prefix("posthaste-demo-")
            .tempdir()?;
        let url = store.unwrap_or_else(|| {
            SecretUrl::new(format!(
                "sqlite:{}",
                directory.path().join("shop.db").display()
            ))
        });
        let kind = open::store_kind(&url)?;
        kind.init(url.expose(), &InitOptions::default()).await?;
        let warehouse = directory.path().join("warehouse");
        std::fs::create_dir(&warehouse)?;
        Ok(Self {
            run: Uuid::new_v4().simple().to_string()[..8].to_owned(),
            store: open::bounded_store(&url)?,
            file: warehouse.join("events.jsonl"),
            warehouse,
            directory,
            url,
        })
    }

    fn kind(&self) -> &'static str {
        self.store.info().kind
    }

    fn topic(&self) -> String {
        format!("demo.{}.orders", self.run)
    }

    /// The name of the destination, of this run alone: the store may be somebody's own.
    fn destination(&self) -> String {
        format!("demo-{}", self.run)
    }

    /// Starts the relay in this process.
    #[expect(
        clippy::type_complexity,
        reason = "three handles of one thing, taken apart at once"
    )]
    fn start_relay(
        &self,
    ) -> Result<
        (
            JoinHandle<Result<Summary, RelayError>>,
            Arc<Counters>,
            oneshot::Sender<()>,
        ),
        Failure,
    > {
        let address = file_url(&self.file);
        let sink = open::sink(&SecretUrl::new(address.clone()))?;
        let destination = Destination::new(self.destination(), sink).address(address);
        let counters = destination.counters();
        let relay = Relay::builder(Arc::clone(&self.store))
            .name(self.destination())
            .destination(destination)
            .routes(self.routes()?)
            .build()?;
        let (stop, stopped) = oneshot::channel();
        let running = tokio::spawn(relay.run(async move {
            // A dropped sender means that the demo is over, too.
            drop(stopped.await);
        }));
        Ok((running, counters, stop))
    }

    /// Our own events to our destination, those of others nowhere.
    fn routes(&self) -> Result<Routes, Failure> {
        let route = |topic: Option<String>, action| Route {
            matches: RouteMatch {
                topic,
                ..RouteMatch::default()
            },
            action,
            attempts: None,
            on_dead: None,
        };
        Routes::new(vec![
            route(
                Some(self.topic()),
                RouteAction::To(vec![self.destination()]),
            ),
            route(None, RouteAction::Drop),
        ])
        .map_err(|error| Failure::failed(error.to_string()))
    }

    /// Removes what was made: from a store that is not ours everything, from the disk unless kept.
    async fn clear(self, own_store: bool, keep: bool) -> Result<(), Failure> {
        if own_store && !keep {
            self.store
                .set_destination(&self.destination(), DestinationState::Removed)
                .await?;
            shop::open_shop(&self.url, &self.run)
                .await?
                .remove()
                .await?;
        }
        if keep {
            let kept = self.directory.keep();
            eprintln!(
                "Kept in {}: {} and the delivered events.",
                kept.display(),
                self.url
            );
        }
        Ok(())
    }
}

/// A path as a sink's URL; a few characters mean something there.
fn file_url(path: &Path) -> String {
    let path = path
        .display()
        .to_string()
        .replace('%', "%25")
        .replace('?', "%3F");
    format!("file://{path}")
}
