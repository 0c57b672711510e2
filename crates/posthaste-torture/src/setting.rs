//! Which database, which destination, how many relays, and what can go wrong there.

use std::{fmt, sync::Arc};

use posthaste_testkit::servers::mysql::Version;

use crate::{
    brokers::{
        Brokered, Shared, Target, artemis::Artemis, http::Http, kafka::Kafka, kinesis::Kinesis,
        mqtt::Mqtt, nats::Nats, rabbitmq::RabbitMq, redis::Redis, sqs::Sqs,
    },
    faults::Fault,
    source::Source,
};

/// Which database relays read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DatabaseKind {
    /// Several relays share the work where the destination lets them.
    Postgres,
    /// One relay delivers, the others stand by. It has no clock but the machine's, so that one is
    /// left alone.
    Sqlite,
    /// MySQL 8, which has a binary log; as [`Self::Postgres`].
    Mysql,
    /// MariaDB 11 without a binary log; as [`Self::Postgres`].
    MariaDb,
}

/// Where they deliver to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SinkKind {
    /// Plain delivery: only time fences a relay's lanes.
    Kafka,
    /// Each event is seen exactly once by who reads what is committed.
    KafkaTransactional,
    /// The relays' wall clocks are wrong, drift and jump, unless the database goes by them.
    RabbitMq,
    /// A queue FIFO, which suppresses repeats of the last five minutes.
    Sqs,
    /// The relay's client id fences its lanes. The broker forgets all with its end.
    Mqtt,
    /// A stream of four shards: only time fences. The server forgets all with its end.
    Kinesis,
    /// By AMQP 1.0: only time fences a relay's lanes.
    Artemis,
    /// Webhooks: only time fences a relay's lanes.
    Http,
    /// Streams suppress repeats of the last two minutes.
    Nats,
    /// A script fences relays' lanes, and suppresses repeats of the last events.
    Redis,
    /// One relay delivers, the others stand by.
    File,
}

use DatabaseKind::{MariaDb, Mysql, Postgres, Sqlite};

/// A database and a destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting {
    /// Which database.
    pub database: DatabaseKind,
    /// Which destination.
    pub sink: SinkKind,
}

impl Setting {
    /// Those that a run has, in turn.
    pub const ALL: [Self; 15] = [
        Self::new(Postgres, SinkKind::Kafka),
        Self::new(Sqlite, SinkKind::File),
        Self::new(Postgres, SinkKind::RabbitMq),
        Self::new(Postgres, SinkKind::File),
        Self::new(Postgres, SinkKind::KafkaTransactional),
        Self::new(Sqlite, SinkKind::RabbitMq),
        Self::new(Postgres, SinkKind::Redis),
        Self::new(Mysql, SinkKind::Kafka),
        Self::new(Postgres, SinkKind::Nats),
        Self::new(MariaDb, SinkKind::RabbitMq),
        Self::new(Postgres, SinkKind::Artemis),
        Self::new(Postgres, SinkKind::Http),
        Self::new(Postgres, SinkKind::Sqs),
        Self::new(Postgres, SinkKind::Mqtt),
        Self::new(Postgres, SinkKind::Kinesis),
    ];

    /// From this database to this destination.
    #[must_use]
    pub const fn new(database: DatabaseKind, sink: SinkKind) -> Self {
        Self { database, sink }
    }

    /// The destination, made for so many relays.
    #[must_use]
    pub fn target(self, relays: usize) -> Arc<dyn Target> {
        let kafka = || Kafka::for_relays(relays);
        match self.sink {
            SinkKind::Kafka => Arc::new(Brokered(Arc::new(kafka()))),
            SinkKind::KafkaTransactional => Arc::new(Brokered(Arc::new(kafka().transactional()))),
            SinkKind::RabbitMq => Arc::new(Brokered(Arc::new(RabbitMq::for_relays(relays)))),
            SinkKind::Artemis => Arc::new(Brokered(Arc::new(Artemis::for_relays(relays)))),
            SinkKind::Http => Arc::new(Brokered(Arc::new(Http::for_relays(relays)))),
            SinkKind::Kinesis => Arc::new(Brokered(Arc::new(Kinesis::for_relays(relays)))),
            SinkKind::Mqtt => Arc::new(Brokered(Arc::new(Mqtt::for_relays(relays)))),
            SinkKind::Nats => Arc::new(Brokered(Arc::new(Nats::for_relays(relays)))),
            SinkKind::Redis => Arc::new(Brokered(Arc::new(Redis::for_relays(relays)))),
            SinkKind::Sqs => Arc::new(Brokered(Arc::new(Sqs::for_relays(relays)))),
            SinkKind::File => Arc::new(Shared::new()),
        }
    }

    /// The database, with a standby if so, which only PostgreSQL has.
    pub async fn start_database(self, has_standby: bool) -> Source {
        match self.database {
            Sqlite => Source::sqlite().await,
            Postgres if has_standby => Source::postgres_with_standby(),
            Postgres => Source::postgres(),
            Mysql => Source::mysql(Version::MySql8),
            MariaDb => Source::mysql(Version::MariaDb11),
        }
    }

    /// How many relays a lap has unless told otherwise.
    #[must_use]
    pub fn relays(self) -> usize {
        if self.is_to_file() || self.is_on_sqlite() {
            2
        } else {
            3
        }
    }

    /// Whether each event must be seen once, and no repeat.
    #[must_use]
    pub fn is_exactly_once(self) -> bool {
        self.sink == SinkKind::KafkaTransactional
    }

    /// Whether relays have wall clocks that are wrong.
    #[must_use]
    pub fn has_wrong_clocks(self) -> bool {
        !self.is_on_sqlite() && self.sink == SinkKind::RabbitMq
    }

    pub(crate) fn is_on_postgres(self) -> bool {
        self.database == Postgres
    }

    pub(crate) fn is_on_sqlite(self) -> bool {
        self.database == Sqlite
    }

    pub(crate) fn is_to_file(self) -> bool {
        self.sink == SinkKind::File
    }

    fn is_to_kafka(self) -> bool {
        matches!(self.sink, SinkKind::Kafka | SinkKind::KafkaTransactional)
    }

    /// Whether this fault can happen to so many relays here, with a standby where it needs one.
    #[must_use]
    pub fn knows(self, fault: Fault, relays: usize) -> bool {
        match fault {
            Fault::Kill | Fault::Freeze | Fault::Stop => true,
            Fault::Two => relays > 2,
            Fault::CutBroker | Fault::SilentBroker | Fault::BrokerPause => !self.is_to_file(),
            Fault::BrokerKill | Fault::BrokerStop => {
                !self.is_to_file() && !matches!(self.sink, SinkKind::Kinesis | SinkKind::Mqtt)
            }
            Fault::DiskFull
            | Fault::NoFolder
            | Fault::Rotation
            | Fault::Elsewhere
            | Fault::Poison => self.is_to_file(),
            Fault::TopicsDeleted => self.is_to_kafka(),
            // A server has a clock of its own.
            Fault::ClockSetBack | Fault::WriterKill => self.is_on_sqlite(),
            // A transaction that is held open stops every other writer of SQLite.
            Fault::CutDatabase
            | Fault::SilentDatabase
            | Fault::EndBackends
            | Fault::Crash
            | Fault::Restart
            | Fault::Long
            | Fault::Giant => !self.is_on_sqlite(),
            Fault::RowSecurity | Fault::Settings | Fault::StandbyReader => self.is_on_postgres(),
        }
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let database = match self.database {
            Postgres => "PostgreSQL",
            Sqlite => "SQLite",
            Mysql => "MySQL",
            MariaDb => "MariaDB",
        };
        let sink = match self.sink {
            SinkKind::Kafka => "Kafka",
            SinkKind::KafkaTransactional => "Kafka, transactional",
            SinkKind::RabbitMq => "RabbitMQ",
            SinkKind::Artemis => "Artemis",
            SinkKind::Http => "HTTP",
            SinkKind::Kinesis => "Kinesis",
            SinkKind::Mqtt => "MQTT",
            SinkKind::Nats => "NATS",
            SinkKind::Redis => "Redis",
            SinkKind::Sqs => "SQS",
            SinkKind::File => "a file",
        };
        write!(f, "{database} to {sink}")
    }
}
