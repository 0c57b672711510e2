//! What is done to where a fleet delivers.

use std::{fs, sync::Arc, time::Instant};

use rand::Rng;
use rustix::process::{Pid, Resource, Rlimit, prlimit};

use super::{LEASE, Scene, outlast, stop_after_whatever};
use crate::{
    brokers::{Broker, kafka::Kafka},
    database::{Plan, Step},
    faults::ROTATIONS,
    relay::{LIMIT, assert_no_panic, posthaste, until},
};

impl Scene {
    fn broker(&self) -> &dyn Broker {
        self.target.broker().expect("a broker")
    }

    pub(super) async fn broker_ends(&mut self, how: impl FnOnce(&dyn Broker)) {
        how(self.broker());
        let away = LEASE.mul_f64(self.random.random_range(0.1..1.5));
        tokio::time::sleep(away).await;
        self.broker().start_again();
    }

    pub(super) async fn broker_stands_still(&self) {
        let began = Instant::now();
        self.broker().pause();
        outlast(began).await;
        self.broker().resume();
    }

    /// The limit of a file's size stands for a full device where nobody may mount one.
    pub(super) async fn disk_full(&mut self) {
        let who = self.fleet.an_owner(&mut self.random);
        let pid = self.fleet.running(who).id();
        let pid = Pid::from_raw(pid.try_into().unwrap());
        let limit = |current| {
            let maximum = None;
            prlimit(pid, Resource::Fsize, Rlimit { current, maximum }).unwrap();
        };
        let file = self.target.file().expect("a file").path();
        // In the midst of a line, soon.
        limit(Some(fs::metadata(file).unwrap().len() + 5_000));
        self.is_noticed().await;
        limit(None);
    }

    pub(super) async fn no_folder(&mut self) {
        // Who starts while it is away is told so, and ends.
        self.fleet.is_shared_out().await;
        let folder = self.target.file().expect("a file").directory().to_owned();
        let elsewhere = folder.with_extension("moved");
        fs::rename(&folder, &elsewhere).unwrap();
        self.is_noticed().await;
        fs::rename(&elsewhere, &folder).unwrap();
    }

    /// As often as there is a new file, so that one of them goes between the look at its name and
    /// the write.
    pub(super) async fn rotation(&self) {
        let files = self.target.files().expect("a file");
        for _ in 0..ROTATIONS {
            until("a new file", || files.file().path().exists()).await;
            files.takes_away(files.file());
        }
    }

    /// A rolling change of the address that relays are told, in which the last one of the former is
    /// killed.
    pub(super) async fn elsewhere(&mut self) {
        let target = Arc::clone(&self.target);
        let files = target.files().expect("a file");
        self.fleet.is_shared_out().await;
        let who = self.fleet.an_owner(&mut self.random);
        let others: Vec<usize> = (0..self.fleet.size())
            .filter(|&other| other != who)
            .collect();
        for &other in &others {
            stop_after_whatever(self.fleet.take(other));
        }
        let former = files.tell_the_other();
        for &other in &others {
            self.fleet.start(other);
            let stands_by = "standing by until no live relay delivers to the other address";
            self.fleet.running(other).wait_for_stderr(stands_by, LIMIT);
        }
        self.fleet.delivers().await;
        assert!(!files.file().path().exists(), "it was to stand by");
        self.another_kind_is_refused();
        assert_no_panic(&self.fleet.take(who).kill9().stderr);
        self.fleet.is_taken_over_from(&[who]).await;
        until("delivery into the other file", || files.file().lines() > 0).await;
        files.takes_away(former);
        self.fleet.start(who);
    }

    fn another_kind_is_refused(&self) {
        let url = self.ground.database().url();
        let refused = posthaste(&["relay", "--from", &url, "--to", "null:", "--until-drained"]);
        assert!(!refused.status.success(), "{refused}");
        assert!(refused.stderr.contains("--retarget"), "{refused}");
    }

    /// The destination is known to be away, then a while passes.
    pub(super) async fn is_noticed(&mut self) {
        // A limit of file sizes is one of SQLite's file too, so that nothing can be noted there.
        if !self.setting.is_on_sqlite() {
            until("an open breaker", || {
                self.fleet.status()["destinations"][0]["breaker"] == "open"
            })
            .await;
        }
        let away = LEASE.mul_f64(self.random.random_range(0.2..1.2));
        tokio::time::sleep(away).await;
    }

    /// A topic is deleted that the torture's own events do not go to, and under transactions the
    /// one that progress is kept in. An event for the missing topic is set aside, those behind it
    /// wait, and all are delivered in the end, when the topic is there again.
    pub(super) async fn topics_deleted(&mut self) {
        self.deleted_topics += 1;
        let number = self.deleted_topics;
        let (topic, key) = (format!("elsewhere-{number}"), format!("elsewhere-{number}"));
        self.fleet.catches_up().await;
        self.kafka().begin_elsewhere(&topic);
        let mut writer = self.ground.database().writer().await.unwrap();
        let to_topic = Plan {
            steps: vec![Step {
                topic: topic.clone(),
                ..Step::new(&*key, 1)
            }],
            ..Plan::default()
        };
        writer.transact(&to_topic).await.unwrap();
        until("an event in the other topic", || {
            self.kafka().arrived_at(&topic) > 0
        })
        .await;
        if self.setting.is_exactly_once() {
            self.kafka().delete_progress();
        }
        self.kafka().delete_elsewhere(&topic);
        writer.transact(&to_topic).await.unwrap();
        writer.transact(&Plan::of(&*key, 20)).await.unwrap();
        self.one_is_dead(&key).await;
        self.kafka().begin_elsewhere(&topic);
    }

    fn kafka(&self) -> &Kafka {
        self.broker().kafka().expect("a Kafka")
    }
}
