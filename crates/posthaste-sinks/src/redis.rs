//! The sink that adds to Redis Streams.
//!
//! Everything that it promises is decided by one script, which the server runs as a whole
//! (`add.lua`): whether the lane is still the newest, which events the stream has already, and
//! where to stop.
//!
//! The newest lane is the one that was opened last (`open.lua`), and no token is compared: epochs
//! begin again where a database was recovered to an earlier point, and its relays must go on. A
//! relay confirms its lease between opening and sending, so one that was replaced sends nothing.
//!
//! The client is used for the protocol alone. It takes any stream of bytes, so sockets and TLS are
//! those of the other sinks.

mod adding;
mod connection;
mod entry;
mod fault;
#[cfg(test)]
mod fuzz;
mod keys;
mod lane;
mod stream_name;
mod survey;
mod target;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use posthaste_engine::{
    CheckReport, DedupWindow, Deduplication, FenceKind, KeyOrder, Lane, LaneSpec, Sink, SinkError,
    SinkInfo,
};
use tokio::time::{Instant, timeout_at};

use crate::{
    address::{Address, authority::Host},
    descriptors::redis::{
        CA_FILE, CALLS_MAX, CERT_FILE, EVENT_BYTES_MAX, KEY_FILE, KNOWN_IDS, MAXLEN, REDIS, STREAM,
        WAIT,
    },
    publisher::WorkerLane,
    transport::{OPEN_LIMIT, Tls, first_of, open_limit},
};

use adding::OpenLane;
use connection::{Connection, Login};
use fault::ServerFault;
use lane::{EVENTS_MAX, RedisPublisher};
use stream_name::StreamPattern;
use target::Target;

const DEFAULT_PORT: u16 = 6379;
/// How often a cluster may send us to another server before it gives up.
const REDIRECTIONS_MAX: u32 = 3;

/// Adds each record to a stream, and accepts it once the server has it.
pub struct RedisSink {
    hosts: Vec<Host>,
    login: Login,
    target: Arc<Target>,
}

impl RedisSink {
    pub(crate) fn from_address(address: &Address) -> Result<Self, SinkError> {
        address.check(&REDIS.plug_in)?;
        let authority = address.authority()?;
        let mut login = Login {
            database: database(authority.path.as_deref().unwrap_or_default()).ok_or_else(|| {
                let reason = "behind the servers' `/` stands the number of a database, or nothing";
                address.misconfigured(reason.to_owned())
            })?,
            tls: tls(address)?,
            ..Login::default()
        };
        match authority.user.map(|user| (user.name, user.password)) {
            Some((user, Some(password))) => login.user = Some((user, password)),
            Some((_, None)) => {
                let reason = "the login has no password; write `USER:PASSWORD@`, and for a \
                              password alone the user `default`";
                return Err(address.misconfigured(reason.to_owned()));
            }
            None => {}
        }
        let number = |option| address.number(option);
        let maxlen = address.given(&MAXLEN).map(target::maxlen).transpose();
        Ok(Self {
            hosts: authority.hosts,
            login,
            target: Arc::new(Target {
                stream: StreamPattern::new(address.text(&STREAM).unwrap_or_default())
                    .map_err(|reason| address.misconfigured(reason.to_owned()))?,
                maxlen: maxlen
                    .map_err(|reason| address.misconfigured(reason))?
                    .unwrap_or(("", 0)),
                known_ids: number(&KNOWN_IDS)?.unwrap_or_default(),
                event_bytes_max: number(&EVENT_BYTES_MAX)?,
                wait: number(&WAIT)?,
            }),
        })
    }

    /// Its name in errors.
    fn name(&self) -> String {
        let hosts = self.hosts.iter();
        let hosts: Vec<_> = hosts
            .map(|host| host.with_default_port(DEFAULT_PORT))
            .collect();
        format!("redis {}", hosts.join(","))
    }

    /// The answer of the first server that gives `ask` one. A cluster may know a better one.
    async fn of_first<T, Asking>(
        &self,
        limit: Duration,
        patience: Duration,
        ask: impl Fn(Connection) -> Asking,
    ) -> Result<T, ServerFault>
    where
        Asking: Future<Output = Result<T, ServerFault>>,
    {
        let (login, ask, end) = (&self.login, &ask, Instant::now() + limit);
        let mut answer = first_of(
            &self.hosts,
            DEFAULT_PORT,
            limit,
            |name, address| async move {
                ask(Connection::open(login, name, &address, patience).await?).await
            },
        )
        .await;
        for _ in 0..REDIRECTIONS_MAX {
            let Err(ServerFault {
                moved_to: Some(address),
                ..
            }) = &answer
            else {
                break;
            };
            let (host, _) = address.rsplit_once(':').unwrap_or((address, ""));
            let other =
                async { ask(Connection::open(login, host, address, patience).await?).await };
            answer = timeout_at(end, other)
                .await
                .unwrap_or_else(|_| Err(ServerFault::slow("asking the cluster", limit)));
        }
        answer
    }
}

/// The number behind the `/`.
fn database(path: &[u8]) -> Option<u32> {
    match path {
        b"" => Some(0),
        digits if digits.iter().all(u8::is_ascii_digit) => {
            std::str::from_utf8(digits).ok()?.parse().ok()
        }
        _ => None,
    }
}

fn tls(address: &Address) -> Result<Option<Tls>, SinkError> {
    let is_asked = address.scheme() == "rediss";
    let files = [&CA_FILE, &CERT_FILE, &KEY_FILE];
    Tls::of(
        address,
        files,
        is_asked,
        "write `rediss://`",
        "write `redis://`",
    )
}

#[async_trait]
impl Sink for RedisSink {
    fn info(&self) -> SinkInfo {
        SinkInfo {
            kind: "redis",
            batch_events_max: 1_000,
            batch_bytes_max: 1 << 20,
            in_flight_events_max: EVENTS_MAX,
            event_bytes_max: self.target.event_bytes_max,
            requests_max: Some(CALLS_MAX),
            deduplication: Some(Deduplication {
                window: DedupWindow::AtTheReceiver,
                ids_max: Some(self.target.known_ids),
            }),
            key_order: KeyOrder::Pipelined,
            fence: FenceKind::Exact,
            single_lane: false,
            parts: None,
        }
    }

    async fn check(&self) -> Result<CheckReport, SinkError> {
        let target = &*self.target;
        let ask = |mut connection: Connection| async move {
            survey::survey(&mut connection.client, target).await
        };
        let surveyed = self.of_first(OPEN_LIMIT, OPEN_LIMIT, ask).await;
        surveyed.map_err(|fault| fault.into_error(self.name()))
    }

    async fn open_lane(&self, spec: LaneSpec) -> Result<Box<dyn Lane>, SinkError> {
        let limit = open_limit(&spec);
        let (spec, target) = (&spec, &*self.target);
        let open = |connection: Connection| async move {
            let lane = OpenLane::open(connection.client.clone(), spec, target).await?;
            Ok((connection, lane))
        };
        let opened = self.of_first(limit, spec.publish_timeout, open).await;
        let (connection, lane) = opened.map_err(|fault| fault.into_error(self.name()))?;
        let publisher = RedisPublisher::new(connection, lane, Arc::clone(&self.target));
        Ok(Box::new(WorkerLane::spawn(publisher)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sink(url: &str) -> Result<RedisSink, SinkError> {
        RedisSink::from_address(&Address::parse(url)?)
    }

    #[test]
    fn addresses_name_servers_login_and_stream() {
        let url = "rediss://me:p%40ss@a,b:7/3?stream=x:{topic}&maxlen=~9&wait=1";
        let sink = sink(url).ok().unwrap();
        assert_eq!(sink.name(), "redis a:6379,b:7");
        let login = ("me".to_owned(), "p@ss".to_owned());
        assert_eq!(sink.login.user, Some(login));
        assert!(sink.login.tls.is_some() && sink.login.database == 3);
        assert_eq!(sink.target.stream.stream("t"), Ok("x:t".to_owned()));
        assert_eq!((sink.target.maxlen, sink.target.wait), (("~", 9), Some(1)));
        let other = super::tests::sink("redis://[::1]?maxlen=9").ok().unwrap();
        assert_eq!(other.login.user, None);
        assert!(other.login.tls.is_none());
        assert_eq!((other.target.maxlen, other.target.wait), (("=", 9), None));
    }

    #[test]
    fn wrong_addresses_name_the_fix() {
        for (url, fix) in [
            ("redis://", "a host is"),
            ("redis://s3cret@h", "the user `default`"),
            ("redis://h/orders", "number of a database"),
            ("redis://h/-1", "number of a database"),
            ("redis://h?straem=S", "did you mean `stream`"),
            ("redis://h?stream=", "no key"),
            ("redis://h?stream={key}", "`{topic}` alone"),
            ("redis://h?maxlen=", "`maxlen` is"),
            ("redis://h?maxlen=~0", "`maxlen` is"),
            ("redis://h?known_ids=10", "at least 1000"),
            ("redis://h?wait=0", "at least 1"),
            ("redis://h?ca_file=/x", "write `rediss://`"),
            ("rediss://h?key_file=/x", "belong together"),
        ] {
            let error = sink(url).err().unwrap();
            assert!(matches!(error, SinkError::Misconfigured { .. }), "{url}");
            assert!(error.to_string().contains(fix), "{url}: {error}");
        }
    }
}
