//! Which database, which destination, how many relays, and what can go wrong there.

use std::{fmt, sync::Arc};

use crate::{
    brokers::{Brokered, Shared, Target, kafka::Kafka, rabbitmq::RabbitMq},
    faults::Fault,
    ground::Ground,
};

/// A combination of database and destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Setting {
    /// Plain delivery: only time fences a relay's lanes.
    PostgresToKafka,
    /// Each event is seen exactly once by who reads what is committed.
    PostgresToKafkaTransactional,
    /// The relays' wall clocks are wrong, drift and jump.
    PostgresToRabbitMq,
    /// One relay delivers, the others stand by.
    PostgresToFile,
    /// The same on SQLite.
    SqliteToFile,
    /// One relay delivers, the others stand by. SQLite has no clock but the machine's, so that one is left alone.
    SqliteToRabbitMq,
}

impl Setting {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::PostgresToKafka,
        Self::SqliteToFile,
        Self::PostgresToRabbitMq,
        Self::PostgresToFile,
        Self::PostgresToKafkaTransactional,
        Self::SqliteToRabbitMq,
    ];

    /// The destination, made for so many relays.
    #[must_use]
    pub fn target(self, relays: usize) -> Arc<dyn Target> {
        match self {
            Self::PostgresToKafka => Arc::new(Brokered(Arc::new(Kafka::for_relays(relays)))),
            Self::PostgresToKafkaTransactional => {
                let kafka = Kafka::for_relays(relays).transactional();
                Arc::new(Brokered(Arc::new(kafka)))
            }
            Self::PostgresToRabbitMq | Self::SqliteToRabbitMq => {
                Arc::new(Brokered(Arc::new(RabbitMq::for_relays(relays))))
            }
            Self::PostgresToFile | Self::SqliteToFile => Arc::new(Shared::new()),
        }
    }

    /// The database, with a standby if so; SQLite has none.
    pub async fn ground(self, has_standby: bool) -> Ground {
        if self.is_on_sqlite() {
            Ground::sqlite().await
        } else if has_standby {
            Ground::postgres_with_standby()
        } else {
            Ground::postgres()
        }
    }

    /// How many relays a lap has unless told otherwise.
    #[must_use]
    pub fn relays(self) -> usize {
        match self {
            Self::PostgresToFile | Self::SqliteToFile | Self::SqliteToRabbitMq => 2,
            _ => 3,
        }
    }

    /// Whether each event must be seen once, and no repeat.
    #[must_use]
    pub fn is_exactly_once(self) -> bool {
        self == Self::PostgresToKafkaTransactional
    }

    /// Whether relays have wall clocks that are wrong.
    #[must_use]
    pub fn has_wrong_clocks(self) -> bool {
        self == Self::PostgresToRabbitMq
    }

    pub(crate) fn is_on_sqlite(self) -> bool {
        matches!(self, Self::SqliteToFile | Self::SqliteToRabbitMq)
    }

    pub(crate) fn is_to_file(self) -> bool {
        matches!(self, Self::PostgresToFile | Self::SqliteToFile)
    }

    fn is_to_kafka(self) -> bool {
        matches!(
            self,
            Self::PostgresToKafka | Self::PostgresToKafkaTransactional
        )
    }

    /// Whether this fault can happen to so many relays here, with a standby where it needs one.
    #[must_use]
    pub fn knows(self, fault: Fault, relays: usize) -> bool {
        match fault {
            Fault::Kill | Fault::Freeze | Fault::Stop => true,
            Fault::Two => relays > 2,
            Fault::CutBroker
            | Fault::SilentBroker
            | Fault::BrokerKill
            | Fault::BrokerStop
            | Fault::BrokerPause => !self.is_to_file(),
            Fault::DiskFull
            | Fault::NoFolder
            | Fault::Rotation
            | Fault::Elsewhere
            | Fault::Poison => self.is_to_file(),
            Fault::TopicsDeleted => self.is_to_kafka(),
            // PostgreSQL has a clock of its own.
            Fault::ClockSetBack | Fault::WriterKill => self.is_on_sqlite(),
            // A transaction that is held open stops every other writer of SQLite.
            Fault::CutDatabase
            | Fault::SilentDatabase
            | Fault::EndBackends
            | Fault::Crash
            | Fault::Restart
            | Fault::RowSecurity
            | Fault::Settings
            | Fault::StandbyReader
            | Fault::Long
            | Fault::Giant => !self.is_on_sqlite(),
        }
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::PostgresToKafka => "PostgreSQL to Kafka",
            Self::PostgresToKafkaTransactional => "PostgreSQL to Kafka, transactional",
            Self::PostgresToRabbitMq => "PostgreSQL to RabbitMQ",
            Self::PostgresToFile => "PostgreSQL to a file",
            Self::SqliteToFile => "SQLite to a file",
            Self::SqliteToRabbitMq => "SQLite to RabbitMQ",
        })
    }
}
