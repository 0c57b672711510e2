//! More brokers of one cluster, so that topics have replicas.

use super::KafkaServer;
use super::install::{self, Programs};
use super::{READY, classes, properties};
use crate::ports::Port;
use crate::servers::daemon::Daemon;
use std::path::PathBuf;

/// One more broker of a [`KafkaServer`]'s cluster, which stays its only controller: whatever
/// becomes of this one, the cluster notices. Dropped, it is killed.
#[derive(Debug)]
pub struct MoreBroker {
    daemon: Daemon,
    programs: Programs,
    config: PathBuf,
    _ports: [Port; 2],
}

impl KafkaServer {
    /// Starts one more broker with this number, 2 or more; returns when it serves. Clients find it
    /// by the cluster's own answers.
    ///
    /// # Panics
    ///
    /// When the cluster is not ours, or the broker does not come up (the message has its log).
    #[must_use]
    pub fn add_broker(&self, node: u32) -> MoreBroker {
        let own = self.own();
        let daemon = Daemon::new("Kafka", install::account());
        let programs = classes::programs(&daemon, false);
        let ports = [Port::reserve(), Port::reserve()];
        let data = programs.joining_data(&daemon, &own.daemon, node);
        let controller = own.ports.controller.number();
        let lines = properties::joining(node, &ports[0], &ports[1], controller, &data);
        let broker = MoreBroker {
            config: daemon.write("server.properties", &lines),
            daemon,
            programs,
            _ports: ports,
        };
        broker.start_again();
        broker
    }
}

impl MoreBroker {
    /// Stops the broker in order; returns when the process has ended.
    ///
    /// # Panics
    ///
    /// When it does not run.
    pub fn stop(&self) {
        self.daemon.stop();
    }

    /// Kills the broker (`kill -9`); returns when the process has ended.
    ///
    /// # Panics
    ///
    /// When it does not run.
    pub fn kill9(&self) {
        self.daemon.kill9();
    }

    /// Starts the stopped broker again on its ports and data; returns when it serves.
    ///
    /// # Panics
    ///
    /// When it runs already, or does not come up.
    pub fn start_again(&self) {
        let mut command = self.programs.java(&self.daemon);
        command.arg("kafka.Kafka").arg(&self.config);
        self.daemon.launch(command, |log| log.contains(READY));
    }
}
