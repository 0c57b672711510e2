//! Follows a guide from its first command to its last, as its reader would: commands that run for
//! ever in terminals of their own, outputs compared with what the page shows, and a broker that is
//! paused.

use std::{fs, process::Command, thread, time::Duration, time::Instant};

use posthaste_testkit::{
    ports::Port,
    process::{Finished, Running, run},
    servers::postgres::PostgresServer,
};

use crate::page::{self, shows};
use crate::tools::{LIMIT, checkout, path};

/// Between two looks at something that changes.
const POLL: Duration = Duration::from_millis(50);

/// Lines that the test's own set-up stands for: it has built the binary, started a broker, and
/// installed the packages that the page's file names.
const DONE_BEFORE: &[&str] = &[
    "docker run ",
    "cargo build ",
    "export PATH=",
    "python3 -m venv .venv",
    ".venv/bin/pip install --quiet -r docs/examples/python/requirements-consumers.txt",
];

/// The values of a broker that a guide needs.
pub(crate) struct Broker<'a> {
    /// As the page writes it.
    pub(crate) address: &'static str,
    pub(crate) host_and_port: String,
    /// Another address on the page, and the one that stands for it here.
    pub(crate) also: Option<(&'static str, String)>,
    pub(crate) pause: &'a dyn Fn(),
    pub(crate) resume: &'a dyn Fn(),
}

/// The database of a guide.
struct Database {
    /// Its address as the page writes it, and the one that stands for it here.
    address: (&'static str, String),
    /// Runs the SQL of `typed.sql` as the application.
    run_sql: &'static str,
}

/// Does what the page says, against a PostgreSQL of its own. Only addresses are replaced.
pub(crate) fn follow(
    page: &str,
    broker: &Broker<'_>,
    install_tools: impl FnOnce(&std::path::Path),
) {
    let postgres = PostgresServer::builder().setting("fsync", "off").start();
    let database = Database {
        address: ("@localhost/", format!("@127.0.0.1:{}/", postgres.port())),
        run_sql: "psql --set ON_ERROR_STOP=1 --file typed.sql postgres://shop@localhost/shop",
    };
    // A relay and a consumer run until they are told to stop.
    follow_on(database, page, broker, install_tools, 2);
}

fn follow_on(
    database: Database,
    page: &str,
    broker: &Broker<'_>,
    install_tools: impl FnOnce(&std::path::Path),
    terminals: usize,
) {
    let http = Port::reserve();
    let folder = checkout();
    install_tools(&folder.path().join("bin"));
    let (address, here) = database.address;
    let mut reader = Reader {
        broker,
        sql_command: database.run_sql,
        replacements: broker
            .also
            .iter()
            .map(|(from, to)| ((*from).to_owned(), to.clone()))
            .chain([
                (address.to_owned(), here),
                (broker.address.to_owned(), broker.host_and_port.clone()),
                (
                    "127.0.0.1:9187".to_owned(),
                    format!("127.0.0.1:{}", http.number()),
                ),
            ])
            .collect(),
        folder,
        terminals: Vec::new(),
    };
    let blocks = page::blocks(&page::read(page));
    let mut compared = 0;
    for (number, block) in blocks.iter().enumerate() {
        match &*block.language {
            "sh" => {
                let shown = blocks
                    .get(number + 1)
                    .filter(|next| next.language == "text");
                compared += usize::from(shown.is_some());
                reader.type_all(&block.text, shown.map(|block| &*block.text));
            }
            "sql" => reader.run_sql(&block.text),
            "text" => {}
            other => panic!("a block in {other}, which this test does not know"),
        }
    }
    assert!(compared >= 4, "{page} shows {compared} outputs only");
    assert_eq!(reader.terminals.len(), terminals);
    for terminal in &reader.terminals {
        terminal.terminate();
    }
    for terminal in reader.terminals {
        terminal.wait(LIMIT).expect_status(0);
    }
}

struct Reader<'a> {
    broker: &'a Broker<'a>,
    sql_command: &'static str,
    replacements: Vec<(String, String)>,
    folder: tempfile::TempDir,
    /// The processes that run until they are told to stop.
    terminals: Vec<Running>,
}

impl Reader<'_> {
    /// Types a block's lines one after the other; what the page shows is the last one's output.
    fn type_all(&mut self, block: &str, shown: Option<&str>) {
        let lines: Vec<_> = block.lines().filter(|line| !line.is_empty()).collect();
        for (number, line) in lines.iter().enumerate() {
            let shown = shown.filter(|_| number + 1 == lines.len());
            if DONE_BEFORE.iter().any(|done| line.starts_with(done)) {
                continue;
            }
            match *line {
                "docker pause broker" | "pkill -STOP -f consumer_http.py" => (self.broker.pause)(),
                "docker unpause broker" | "pkill -CONT -f consumer_http.py" => {
                    (self.broker.resume)();
                }
                line if line.contains("posthaste relay ") || line.contains("consumer_") => {
                    let terminal = Running::start(&mut self.command(line));
                    if let Some(shown) = shown {
                        terminal.wait_for_stdout(shown.trim(), LIMIT);
                    }
                    self.terminals.push(terminal);
                }
                line => self.run_until_shown(line, shown.unwrap_or("…")),
            }
        }
    }

    /// The page's reader looks again, too, when relay or consumer have not got there yet.
    fn run_until_shown(&self, line: &str, shown: &str) {
        let since = Instant::now();
        loop {
            let finished = self.run(line);
            if shows(shown, &finished.stdout) {
                return;
            }
            assert!(
                since.elapsed() < LIMIT,
                "the page shows\n{shown}\nbut\n{finished}\n{}",
                self.terminals_output()
            );
            thread::sleep(POLL);
        }
    }

    fn terminals_output(&self) -> String {
        self.terminals
            .iter()
            .map(|terminal| {
                format!(
                    "a terminal shows\n{}{}",
                    terminal.stdout(),
                    terminal.stderr()
                )
            })
            .collect()
    }

    fn run_sql(&self, sql: &str) {
        fs::write(self.folder.path().join("typed.sql"), sql).unwrap();
        self.run(self.sql_command);
    }

    fn run(&self, line: &str) -> Finished {
        run(&mut self.command(line), LIMIT).expect_status(0)
    }

    fn command(&self, line: &str) -> Command {
        let mut line = line.to_owned();
        for (from, to) in &self.replacements {
            line = line.replace(from, to);
        }
        let mut bash = Command::new("bash");
        // Without a shell between us and what has to hear the signals.
        bash.args(["-euc", &format!("exec env {line}")])
            .current_dir(self.folder.path())
            .env("PATH", path(&self.folder.path().join("bin")));
        for variable in ["POSTHASTE_FROM", "POSTHASTE_TO", "POSTHASTE_LOG"] {
            bash.env_remove(variable);
        }
        bash
    }
}

#[cfg(feature = "kafka")]
#[test]
fn the_guide_to_kafka_works_as_it_is_written() {
    use posthaste_testkit::servers::kafka::KafkaServer;
    let server = KafkaServer::start();
    let broker = Broker {
        address: "localhost:9092",
        host_and_port: server.bootstrap(),
        also: None,
        pause: &|| server.pause(),
        resume: &|| server.resume(),
    };
    follow(
        "docs/guides/postgres-to-kafka.md",
        &broker,
        crate::tools::install_kafka_tools,
    );
}

#[cfg(all(feature = "mysql", feature = "kafka"))]
#[test]
fn the_guide_from_mysql_works_as_it_is_written() {
    use posthaste_testkit::servers::{
        kafka::KafkaServer,
        mysql::{MysqlServer, Version},
    };
    let server = KafkaServer::start();
    let mysql = MysqlServer::builder(Version::MySql8).start();
    let broker = Broker {
        address: "localhost:9092",
        host_and_port: server.bootstrap(),
        // As an option of MySQL's own program.
        also: Some(("--port 3306", format!("--port {}", mysql.port()))),
        pause: &|| server.pause(),
        resume: &|| server.resume(),
    };
    let database = Database {
        address: ("127.0.0.1:3306", format!("127.0.0.1:{}", mysql.port())),
        run_sql: "mysql --host 127.0.0.1 --port 3306 --user shop shop --execute 'source typed.sql'",
    };
    let page = "docs/guides/mysql-to-kafka.md";
    let tools = crate::tools::install_kafka_tools;
    follow_on(database, page, &broker, tools, 1);
}

#[cfg(feature = "rabbitmq")]
#[test]
fn the_guide_to_rabbitmq_works_as_it_is_written() {
    use posthaste_testkit::servers::rabbitmq::RabbitMqServer;
    let server = RabbitMqServer::start();
    let broker = Broker {
        address: "localhost:5672",
        host_and_port: format!("127.0.0.1:{}", server.port()),
        also: None,
        pause: &|| server.pause(),
        resume: &|| server.resume(),
    };
    follow("docs/guides/postgres-to-rabbitmq.md", &broker, |_| {});
}

#[cfg(feature = "redis")]
#[test]
fn the_guide_to_redis_works_as_it_is_written() {
    use posthaste_testkit::servers::redis::RedisServer;
    let server = RedisServer::start();
    let broker = Broker {
        address: "localhost:6379",
        host_and_port: format!("127.0.0.1:{}", server.port()),
        also: None,
        pause: &|| server.pause(),
        resume: &|| server.resume(),
    };
    follow("docs/guides/postgres-to-redis.md", &broker, |_| {});
}

#[cfg(feature = "mqtt")]
#[test]
fn the_guide_to_mqtt_works_as_it_is_written() {
    use posthaste_testkit::servers::mqtt::MqttServer;
    let server = MqttServer::start();
    let broker = Broker {
        address: "localhost:1883",
        host_and_port: format!("127.0.0.1:{}", server.port()),
        also: None,
        pause: &|| server.pause(),
        resume: &|| server.resume(),
    };
    follow("docs/guides/postgres-to-mqtt.md", &broker, |_| {});
}

/// The endpoint is the consumer; it hangs behind a proxy, since other tests have one too.
#[cfg(feature = "http")]
#[test]
fn the_guide_to_http_works_as_it_is_written() {
    use posthaste_testkit::proxy::Proxy;
    let endpoint = Port::reserve();
    let proxy = Proxy::to_local_port(endpoint.number()).unwrap();
    let broker = Broker {
        address: "localhost:8080",
        host_and_port: format!("127.0.0.1:{}", proxy.port()),
        also: Some(("127.0.0.1:8080", format!("127.0.0.1:{}", endpoint.number()))),
        pause: &|| proxy.stall(),
        resume: &|| proxy.resume(),
    };
    follow("docs/guides/postgres-to-http.md", &broker, |_| {});
}

#[cfg(feature = "sqs")]
#[test]
fn the_guide_to_sqs_works_as_it_is_written() {
    use posthaste_testkit::servers::sqs::SqsServer;
    let server = SqsServer::start();
    let broker = Broker {
        address: "localhost:9324",
        host_and_port: format!("127.0.0.1:{}", server.port()),
        also: None,
        pause: &|| server.pause(),
        resume: &|| server.resume(),
    };
    follow("docs/guides/postgres-to-sqs.md", &broker, |_| {});
}

#[cfg(feature = "kinesis")]
#[test]
fn the_guide_to_kinesis_works_as_it_is_written() {
    use posthaste_testkit::servers::moto::MotoServer;
    let server = MotoServer::start();
    let broker = Broker {
        address: "localhost:5000",
        host_and_port: format!("127.0.0.1:{}", server.port()),
        also: None,
        pause: &|| server.pause(),
        resume: &|| server.resume(),
    };
    follow("docs/guides/postgres-to-kinesis.md", &broker, |_| {});
}

#[cfg(feature = "pubsub")]
#[test]
fn the_guide_to_pubsub_works_as_it_is_written() {
    use posthaste_testkit::servers::pubsub::PubSubServer;
    let server = PubSubServer::start();
    let broker = Broker {
        address: "localhost:8085",
        host_and_port: format!("127.0.0.1:{}", server.port()),
        also: None,
        pause: &|| server.pause(),
        resume: &|| server.resume(),
    };
    follow("docs/guides/postgres-to-pubsub.md", &broker, |_| {});
}

#[cfg(feature = "amqp10")]
#[test]
fn the_guide_to_amqp10_works_as_it_is_written() {
    use posthaste_testkit::servers::artemis::ArtemisServer;
    let server = ArtemisServer::start();
    let broker = Broker {
        address: "localhost:5672",
        host_and_port: format!("127.0.0.1:{}", server.port()),
        also: Some(("artemis:artemis@", "admin:pass%2Fword@".to_owned())),
        pause: &|| server.pause(),
        resume: &|| server.resume(),
    };
    follow("docs/guides/postgres-to-amqp10.md", &broker, |_| {});
}
