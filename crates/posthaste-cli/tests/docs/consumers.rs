//! The example consumers between kills: of themselves in mid-transaction, of the relay while the
//! broker has events whose acknowledgement never came. Each effect happens once, in the order of
//! its key.

use std::{collections::BTreeMap, collections::BTreeSet, process::Command, thread, time::Instant};

use posthaste_testkit::{
    process::{Running, assert_none_ended, run},
    proxy::Proxy,
    servers::postgres::{Database, PostgresServer},
};
use posthaste_torture::relay::command as posthaste;

use crate::tools::{LIMIT, checkout, path};

const KEYS: usize = 10;
const ROUNDS: usize = 20;

/// The parts of a broker that the scenario needs.
struct Broker<'a> {
    /// The relay's destination, by way of the proxy.
    to: String,
    proxy: &'a Proxy,
    script: &'static str,
    /// Where the consumer finds the broker, beside the proxy.
    environment: Vec<(&'static str, String)>,
    /// How many records the broker has taken, repeats included; of an endpoint that is the consumer
    /// itself, the effects in its database.
    taken: &'a dyn Fn(&Database) -> usize,
    /// The ids of all of them; none where the consumer is the endpoint, and nobody else keeps them.
    ids: Option<&'a dyn Fn() -> Vec<String>>,
}

/// The emitted events: the bodies of each key, in order, none for a tombstone.
type Emitted = BTreeMap<String, Vec<Option<String>>>;

struct Scenario<'a> {
    broker: &'a Broker<'a>,
    shop: Database,
    warehouse: Database,
    relay_url: String,
    folder: tempfile::TempDir,
    emitted: Emitted,
}

impl<'a> Scenario<'a> {
    fn new(broker: &'a Broker<'a>) -> Self {
        let server = PostgresServer::shared(15);
        let (shop, warehouse) = (server.create_database(), server.create_database());
        warehouse.psql(&crate::page::read("docs/examples/python/consumer.sql"));
        let mut init = posthaste(&["init", "--store", &shop.url()]);
        run(&mut init, LIMIT).expect_status(0);
        Self {
            broker,
            relay_url: shop.url(),
            shop,
            warehouse,
            folder: checkout(),
            emitted: Emitted::new(),
        }
    }

    /// A transaction for each event: the next of every key in turn, every seventh a tombstone,
    /// every fifth without a type, and one that is rolled back.
    fn emit(&mut self, rounds: usize, what: &str) {
        let mut sql = String::new();
        for round in 0..rounds {
            for key in 0..KEYS {
                let key = format!("order-{key}");
                let bodies = self.emitted.entry(key.clone()).or_default();
                let is_tombstone = round % 7 == 6;
                let body = (!is_tombstone).then(|| format!("{what} {}", bodies.len()));
                let payload = body.as_ref().map_or("null".to_owned(), |body| {
                    format!("convert_to('{body}', 'UTF8')")
                });
                let event_type = if round % 5 == 4 {
                    "null"
                } else {
                    "'order.changed'"
                };
                sql.push_str(&format!(
                    "insert into posthaste.outbox (topic, key, type, payload)
                     values ('orders', '{key}', {event_type}, {payload});\n"
                ));
                bodies.push(body);
            }
        }
        sql.push_str(
            "begin; insert into posthaste.outbox (topic, key, type) values ('orders', 'never', 'x');
             rollback;",
        );
        let file = self.folder.path().join("emit.sql");
        std::fs::write(&file, sql).unwrap();
        let mut psql = Command::new("psql");
        psql.env("PATH", path(self.folder.path()))
            .args(["-q", "-v", "ON_ERROR_STOP=1", "-f"])
            .arg(file)
            .arg(self.shop.url());
        run(&mut psql, LIMIT).expect_status(0);
    }

    fn emitted(&self) -> usize {
        self.emitted.values().map(Vec::len).sum()
    }

    fn taken(&self) -> usize {
        (self.broker.taken)(&self.warehouse)
    }

    fn start_relay(&self) -> Running {
        let mut relay = posthaste(&["relay", "--from", &self.relay_url]);
        Running::start(relay.env("POSTHASTE_TO", &self.broker.to)).goes_on()
    }

    fn start_consumer(&self) -> Running {
        let mut python = Command::new(self.folder.path().join(".venv/bin/python"));
        let environment = self
            .broker
            .environment
            .iter()
            .map(|(name, value)| (name, value));
        python
            .arg(
                self.folder
                    .path()
                    .join("docs/examples/python")
                    .join(self.broker.script),
            )
            .arg("orders")
            .env("DATABASE_URL", self.warehouse.url())
            .envs(environment);
        Running::start(&mut python)
    }

    fn count(&self, sql: &str) -> usize {
        self.warehouse
            .psql(&format!("select count(*) from {sql}"))
            .parse()
            .unwrap()
    }

    /// Kills a consumer that has written an inbox row and hangs in the effect.
    fn kill_a_consumer_in_mid_transaction(&self) {
        let (mut psql, lock) = (
            Command::new("psql"),
            "lock table order_log; select pg_sleep(3600)",
        );
        psql.env("PATH", path(self.folder.path()))
            .arg(self.warehouse.url());
        let holder = Running::start(psql.args(["-c", &format!("begin; {lock}")]));
        let waiting = "pg_stat_activity where datname = current_database() and wait_event";
        until("the table is locked", || {
            self.count(&format!("{waiting} = 'PgSleep'")) == 1
        });
        let consumer = self.start_consumer();
        // It has declared what it reads: nothing that is published now passes it by.
        consumer.wait_for_stdout("waiting for events", LIMIT);
        let relay = self.start_relay();
        until("the consumer is in the effect", || {
            // An endpoint has several events at a time.
            self.count(&format!("{waiting}_type = 'Lock'")) >= 1
        });
        consumer.kill9();
        self.warehouse.psql(&format!(
            "select pg_terminate_backend(pid) from {waiting} = 'PgSleep'"
        ));
        holder.wait(LIMIT);
        until("the transactions have ended", || {
            self.count("pg_stat_activity where datname = current_database() and state = 'active'")
                == 1
        });
        assert_eq!(self.count("order_log"), 0);
        assert_eq!(
            self.count("inbox"),
            0,
            "an event without its effect is noted as handled"
        );
        if self.broker.ids.is_some() {
            until("the broker has all", || self.taken() >= self.emitted());
        }
        relay.terminate();
        relay.wait(LIMIT).expect_status(0);
    }

    /// Kills a relay that has published events without hearing of it.
    fn kill_the_relay_before_it_hears_of_success(&mut self) {
        let before = self.taken();
        let relay = self.start_relay();
        // One round shows that the lane is open, and that its answers arrive.
        self.emit(1, "heard");
        until("the relay publishes", || self.taken() >= before + KEYS);
        until("the relay has heard", || self.pending() == 0);
        self.broker.proxy.hold_answers();
        let before = self.taken();
        self.emit(ROUNDS, "unheard");
        until("the broker has what the relay does not know", || {
            self.taken() > before
        });
        relay.kill9();
        self.broker.proxy.resume();
    }

    fn pending(&self) -> u64 {
        let mut status = posthaste(&["status", "--json", "--store", &self.relay_url]);
        let finished = run(&mut status, LIMIT).expect_status(0);
        let status: serde_json::Value = serde_json::from_str(&finished.stdout).unwrap();
        status["pending"].as_u64().unwrap()
    }

    /// The consumer's effects, by key and in order.
    fn effects(&self) -> Emitted {
        let rows = self
            .warehouse
            .psql("select order_id, what, body from order_log order by order_id, position");
        let mut effects = Emitted::new();
        for row in rows.lines() {
            let parts: Vec<_> = row.split('|').collect();
            let [order, what, body] = parts[..] else {
                panic!("{row}")
            };
            // Nothing: an event without a type.
            assert!(["order.changed", "tombstone", ""].contains(&what), "{row}");
            let body = (what != "tombstone").then(|| body.to_owned());
            effects.entry(order.to_owned()).or_default().push(body);
        }
        effects
    }
}

fn each_effect_happens_once_and_in_order(broker: &Broker<'_>) {
    let mut scenario = Scenario::new(broker);
    scenario.emit(ROUNDS, "first");
    scenario.kill_a_consumer_in_mid_transaction();

    let is_endpoint = broker.ids.is_none();
    let consumer = scenario.start_consumer();
    let relay = is_endpoint.then(|| scenario.start_relay());
    until("some effects", || scenario.count("order_log") >= KEYS);
    consumer.kill9();
    if let Some(relay) = relay {
        relay.kill9();
    }

    let endpoint = is_endpoint.then(|| scenario.start_consumer());
    scenario.kill_the_relay_before_it_hears_of_success();
    let relay = scenario.start_relay();
    let consumer = endpoint.unwrap_or_else(|| scenario.start_consumer());
    // Behind all repeats: whoever has seen these has seen those.
    scenario.emit(1, "last");
    until("the last effects", || {
        scenario.count("order_log where body like 'last %'") >= KEYS
    });
    for process in [&relay, &consumer] {
        process.terminate();
    }
    relay.wait(LIMIT).expect_status(0);
    let consumer = consumer.wait(LIMIT).expect_status(0);

    // Without repeats the rest would prove nothing.
    if let Some(ids) = broker.ids {
        let ids = ids();
        let distinct: BTreeSet<_> = ids.iter().collect();
        assert_eq!(distinct.len(), scenario.emitted(), "events at the broker");
        assert!(ids.len() > distinct.len(), "no repeat reached the broker");
    }
    assert_eq!(scenario.effects(), scenario.emitted);
    assert!(scenario.count("order_log where what is null") > 0);
    assert!(consumer.stdout.contains("seen before"), "{consumer}");
}

fn until(what: &str, mut so: impl FnMut() -> bool) {
    let since = Instant::now();
    while !so() {
        assert_none_ended();
        assert!(since.elapsed() < LIMIT, "not within {LIMIT:?}: {what}");
        thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[cfg(feature = "kafka")]
#[test]
fn the_kafka_consumer_survives_kills_and_repeats() {
    use posthaste_testkit::servers::kafka::KafkaServer;
    let server = KafkaServer::builder().proxied().start();
    server.create_topic("orders", 3, &[]);
    let id = |message: &posthaste_testkit::servers::kafka::KafkaMessage| {
        String::from_utf8(message.header("id").unwrap().to_vec()).unwrap()
    };
    each_effect_happens_once_and_in_order(&Broker {
        to: format!("kafka://{}", server.bootstrap()),
        proxy: server.proxy(),
        script: "consumer_kafka.py",
        environment: vec![("KAFKA", server.direct())],
        taken: &|_| {
            let records: i64 = server.high_watermarks("orders").iter().sum();
            usize::try_from(records).unwrap()
        },
        ids: Some(&|| server.consume(&["orders"]).iter().map(id).collect()),
    });
}

#[cfg(feature = "rabbitmq")]
#[test]
fn the_rabbitmq_consumer_survives_kills_and_repeats() {
    use posthaste_testkit::servers::rabbitmq::RabbitMqServer;
    let server = RabbitMqServer::start();
    let proxy = Proxy::to_local_port(server.port()).unwrap();
    let client = server.client("/");
    client.declare_exchange("events", "topic");
    // A second queue, which nobody consumes, keeps what was published.
    client.declare_queue("everything", &[]);
    client.bind("everything", "events", "#");
    each_effect_happens_once_and_in_order(&Broker {
        to: format!("{}?exchange=events", server.url_through(&proxy, "/")),
        proxy: &proxy,
        script: "consumer_rabbitmq.py",
        environment: vec![("AMQP", server.url("/"))],
        taken: &|_| usize::try_from(client.message_count("everything")).unwrap(),
        ids: Some(&|| {
            let messages = client.consume("everything");
            messages
                .into_iter()
                .map(|message| message.message_id.unwrap())
                .collect()
        }),
    });
}

/// The stream forgets the ids that it knows, as after a failover to a replica that lags: or no
/// repeat would reach it.
#[cfg(feature = "redis")]
#[test]
fn the_redis_consumer_survives_kills_and_repeats() {
    use posthaste_testkit::servers::redis::{RedisServer, Reply};
    let server = RedisServer::start();
    let proxy = Proxy::to_local_port(server.port()).unwrap();
    let forget = || {
        let Reply::List(Some(keys)) = server.client().ask(&["KEYS", "posthaste:*:ids:*"]) else {
            panic!("no list of keys");
        };
        for key in keys {
            let Reply::Bytes(Some(key)) = key else {
                panic!("{key:?}");
            };
            let key = String::from_utf8(key).unwrap();
            server.client().ask(&["DEL", &key]);
        }
    };
    let id = |entry: posthaste_testkit::servers::redis::StreamEntry| {
        let id = entry.fields.into_iter().find(|(name, _)| name == "id");
        String::from_utf8(id.unwrap().1).unwrap()
    };
    each_effect_happens_once_and_in_order(&Broker {
        to: server.url_through(&proxy),
        proxy: &proxy,
        script: "consumer_redis.py",
        environment: vec![("REDIS", server.url())],
        taken: &|_| {
            let count = server.client().number(&["XLEN", "orders"]);
            // Those that were counted, at least.
            forget();
            usize::try_from(count).unwrap()
        },
        ids: Some(&|| {
            server
                .client()
                .entries("orders")
                .into_iter()
                .map(id)
                .collect()
        }),
    });
}

/// A second subscriber keeps what was published.
#[cfg(feature = "mqtt")]
#[test]
fn the_mqtt_consumer_survives_kills_and_repeats() {
    use posthaste_testkit::servers::mqtt::{MqttMessage, MqttServer};
    use std::sync::Mutex;
    let server = MqttServer::start();
    let proxy = Proxy::to_local_port(server.port()).unwrap();
    let mut client = server.client("beside");
    for filter in ["orders", "beside"] {
        client.subscribe(filter, 1);
    }
    let everything = Mutex::new((client, Vec::new()));
    let id = |message: &MqttMessage| {
        let properties = message.user_properties.iter();
        let mut ids = properties.filter(|(name, _)| name == "id");
        ids.next().unwrap().1.clone()
    };
    let ids = || {
        let mut everything = everything.lock().unwrap();
        let messages = everything.0.messages("beside");
        everything.1.extend(messages.iter().map(id));
        everything.1.clone()
    };
    each_effect_happens_once_and_in_order(&Broker {
        to: server.url_through(&proxy),
        proxy: &proxy,
        script: "consumer_mqtt.py",
        environment: vec![("MQTT", format!("127.0.0.1:{}", server.port()))],
        taken: &|_| ids().len(),
        ids: Some(&ids),
    });
}

/// The consumer is the endpoint: what it has seen before are the repeats that reached it.
#[cfg(feature = "http")]
#[test]
fn the_http_consumer_survives_kills_and_repeats() {
    use posthaste_testkit::ports::Port;
    let endpoint = Port::reserve();
    let proxy = Proxy::to_local_port(endpoint.number()).unwrap();
    let secret = "whsec_8pEY1cYeWSbsNMbO2hJWR6zKhJmGXPoFpQ5pxlYkTzM=";
    each_effect_happens_once_and_in_order(&Broker {
        to: format!(
            "http://127.0.0.1:{}/{{topic}}?format=structured&allow_private=true&secret={secret}",
            proxy.port()
        ),
        proxy: &proxy,
        script: "consumer_http.py",
        environment: vec![
            ("LISTEN", format!("127.0.0.1:{}", endpoint.number())),
            ("WEBHOOK_SECRET", secret.to_owned()),
        ],
        taken: &|warehouse| {
            let count = warehouse.psql("select count(*) from inbox");
            count.parse().unwrap()
        },
        ids: None,
    });
}

#[cfg(feature = "kinesis")]
#[test]
fn the_kinesis_consumer_survives_kills_and_repeats() {
    use posthaste_testkit::servers::moto::{MotoServer, StreamRecord};
    let server = MotoServer::start();
    let proxy = Proxy::to_local_port(server.port()).unwrap();
    server.create_stream("orders", 2);
    let id = |record: StreamRecord| {
        let event: serde_json::Value = serde_json::from_slice(&record.data).unwrap();
        event["id"].as_str().unwrap().to_owned()
    };
    each_effect_happens_once_and_in_order(&Broker {
        to: format!("kinesis://orders?{}", server.options_through(&proxy)),
        proxy: &proxy,
        script: "consumer_kinesis.py",
        environment: vec![
            (
                "AWS_ENDPOINT_URL",
                format!("http://127.0.0.1:{}", server.port()),
            ),
            ("AWS_DEFAULT_REGION", "eu-central-1".to_owned()),
            ("AWS_ACCESS_KEY_ID", "test".to_owned()),
            ("AWS_SECRET_ACCESS_KEY", "test".to_owned()),
        ],
        taken: &|_| server.stream_records("orders").len(),
        ids: Some(&|| {
            server
                .stream_records("orders")
                .into_iter()
                .map(id)
                .collect()
        }),
    });
}

#[cfg(feature = "pubsub")]
#[test]
fn the_pubsub_consumer_survives_kills_and_repeats() {
    use posthaste_testkit::servers::pubsub::{PROJECT, PubSubServer};
    let server = PubSubServer::start();
    let proxy = Proxy::to_local_port(server.port()).unwrap();
    server.create_topic("orders", serde_json::json!({}));
    server.subscribe("orders", "orders", true);
    each_effect_happens_once_and_in_order(&Broker {
        to: format!(
            "pubsub://{PROJECT}/orders?{}",
            server.options_through(&proxy)
        ),
        proxy: &proxy,
        script: "consumer_pubsub.py",
        environment: vec![
            (
                "PUBSUB_EMULATOR_HOST",
                format!("127.0.0.1:{}", server.port()),
            ),
            ("GOOGLE_CLOUD_PROJECT", PROJECT.to_owned()),
        ],
        taken: &|_| server.messages("orders").len(),
        ids: Some(&|| {
            let messages = server.messages("orders").into_iter();
            messages
                .map(|message| message.attributes["id"].clone())
                .collect()
        }),
    });
}
