//! Where relays deliver to: brokers and a file, which can fail.

pub mod artemis;
pub mod http;
pub mod kafka;
pub mod kinesis;
pub mod mqtt;
pub mod nats;
pub mod rabbitmq;
pub mod redis;
pub mod sqs;

use std::{
    fs,
    io::{Read, Write},
    net::{Ipv4Addr, TcpStream},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use posthaste_testkit::{lines, proxy::Proxy, ways::Ways};

use crate::{judge::Delivery, relay::Delivered};

/// A broker of the torture's own, with a destination on it, behind a proxy.
pub trait Broker: Send + Sync {
    /// As `--to` takes it; through the proxy.
    fn url(&self) -> String;
    /// The proxy of [`Self::url`].
    fn proxy(&self) -> &Proxy;
    /// The same for one of several relays that resolves names by [`Ways::hosts`], through a proxy
    /// of its own.
    fn way(&self, relay: usize) -> (String, &Proxy);
    /// In order.
    fn stop(&self);
    /// `kill -9`.
    fn kill9(&self);
    /// After one of both; returns when it serves.
    fn start_again(&self);
    /// SIGSTOP: it stands still, its connections stay open.
    fn pause(&self);
    /// SIGCONT.
    fn resume(&self);
    /// One message by a bare client, through the proxy, to another place than the relay's; whether
    /// it was acknowledged within half a second.
    fn probe(&self) -> bool;
    /// The broker, if it is a Kafka.
    fn kafka(&self) -> Option<&kafka::Kafka> {
        None
    }
    /// How many times longer than usual writers pause, so that it keeps up with them.
    fn slowness(&self) -> u32 {
        1
    }
    /// True of a broker that is meant to lose what it has accepted when its process ends.
    fn is_forgetful(&self) -> bool {
        false
    }
    /// Events that arrived; past the proxy.
    fn arrived(&self) -> u64;
    /// All of them, in order for each key.
    fn deliveries(&self) -> Vec<Delivery>;
}

/// The part of a [`Broker`] that it hands on to its field `server`.
macro_rules! asks_its_server {
    () => {
        fn stop(&self) {
            self.server.stop();
        }

        fn kill9(&self) {
            self.server.kill9();
        }

        fn start_again(&self) {
            self.server.start_again();
        }

        fn pause(&self) {
            self.server.pause();
        }

        fn resume(&self) {
            self.server.resume();
        }
    };
}
use asks_its_server;

/// Time for the answer to a probe.
const PROBE_LIMIT: Duration = Duration::from_millis(500);

/// Says this through the proxy, in the broker's own words, and tells whether an answer with that in
/// it comes in time.
fn is_answered(proxy: &Proxy, says: &str, answer: &str) -> bool {
    let ask = || -> std::io::Result<bool> {
        let began = Instant::now();
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, proxy.port()))?;
        stream.write_all(says.as_bytes())?;
        let mut heard = Vec::new();
        while let Some(left) = PROBE_LIMIT.checked_sub(began.elapsed()) {
            stream.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
            let mut piece = [0; 1024];
            match stream.read(&mut piece)? {
                0 => return Ok(false),
                count => heard.extend_from_slice(&piece[..count]),
            }
            if String::from_utf8_lossy(&heard).contains(answer) {
                return Ok(true);
            }
        }
        Ok(false)
    };
    // A broker that is away refuses, cuts or is silent: each is an answer to a probe.
    ask().unwrap_or(false)
}

/// A consumer, and all that it has read so far.
struct Consumed<C>(Mutex<(C, Vec<Delivery>)>);

impl<C> Consumed<C> {
    fn by(consumer: C) -> Self {
        Self(Mutex::new((consumer, Vec::new())))
    }

    /// Lets it read on with `next`, and looks at all.
    fn read<T>(
        &self,
        next: impl FnOnce(&mut C) -> Vec<Delivery>,
        look: impl FnOnce(&[Delivery]) -> T,
    ) -> T {
        // A panic while it reads leaves those that were read before.
        let mut consumed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (consumer, deliveries) = &mut *consumed;
        deliveries.extend(next(consumer));
        look(deliveries)
    }
}

/// Where a fleet delivers to.
pub trait Target: Send + Sync {
    /// As `--to` of one of the relays takes it; the same for all, since they serve one address.
    fn url(&self, relay: usize) -> String;
    /// The `/etc/hosts` of one of the relays, if it has its own.
    fn hosts(&self, relay: usize) -> Option<String>;
    /// The proxy of all of that; none: it cannot be cut off.
    fn proxy(&self, relay: usize) -> Option<&Proxy>;
    /// Whether several relays deliver at once.
    fn is_shared_out(&self) -> bool;
    /// The broker, if it is one.
    fn broker(&self) -> Option<&dyn Broker>;
    /// The present file, if it is one.
    fn file(&self) -> Option<&Delivered> {
        self.files().map(Shared::file)
    }
    /// The files that it is, one after the other, if it is no broker.
    fn files(&self) -> Option<&Shared>;
    /// From the next start of a relay on nothing is refused.
    fn accept_all(&self);
    /// Events that arrived.
    fn arrived(&self) -> u64;
    /// All of them, in order for each key.
    fn deliveries(&self) -> Vec<Delivery>;
}

/// Events with a larger payload are refused by a [`Shared`] file, until it is told to accept them.
pub const REFUSED_BYTES_MIN: usize = 2_000;

/// A broker with a way for each relay.
pub struct Brokered<B>(pub Arc<B>);

impl<B: Broker> Target for Brokered<B> {
    fn url(&self, relay: usize) -> String {
        self.0.way(relay).0
    }

    fn hosts(&self, relay: usize) -> Option<String> {
        Some(Ways::hosts(relay))
    }

    fn proxy(&self, relay: usize) -> Option<&Proxy> {
        Some(self.0.way(relay).1)
    }

    fn is_shared_out(&self) -> bool {
        true
    }

    fn broker(&self) -> Option<&dyn Broker> {
        Some(&*self.0)
    }

    fn files(&self) -> Option<&Shared> {
        None
    }

    fn accept_all(&self) {}

    fn arrived(&self) -> u64 {
        self.0.arrived()
    }

    fn deliveries(&self) -> Vec<Delivery> {
        self.0.deliveries()
    }
}

/// One file for all relays; they may be told another one.
pub struct Shared {
    files: [Delivered; 2],
    /// Which of them is the present one.
    present: AtomicUsize,
    /// The finished lines of those that were taken away.
    taken: Delivered,
    refuses: AtomicBool,
}

impl Default for Shared {
    fn default() -> Self {
        Self::new()
    }
}

impl Shared {
    /// One that refuses large events.
    #[must_use]
    pub fn new() -> Self {
        Self {
            files: [Delivered::new(), Delivered::new()],
            present: AtomicUsize::new(0),
            taken: Delivered::new(),
            refuses: AtomicBool::new(true),
        }
    }

    /// The one that relays are told when they start.
    pub fn file(&self) -> &Delivered {
        &self.files[self.present.load(Relaxed)]
    }

    /// From now on relays are told the other one. Answers the former.
    pub fn tell_the_other(&self) -> &Delivered {
        &self.files[self.present.fetch_xor(1, Relaxed)]
    }

    /// Takes the file away as a hasty log rotation does: later writes to it are gone, and a line
    /// that is being written is none.
    ///
    /// # Panics
    ///
    /// When it is not there.
    pub fn takes_away(&self, file: &Delivered) {
        let aside = self.taken.path().with_extension("aside");
        fs::rename(file.path(), &aside).unwrap();
        let mut lines = fs::read(&aside).unwrap();
        fs::remove_file(&aside).unwrap();
        let finished = lines.iter().rposition(|&byte| byte == b'\n');
        lines.truncate(finished.map_or(0, |last| last + 1));
        let mut taken = fs::OpenOptions::new();
        let taken = taken.create(true).append(true).open(self.taken.path());
        taken.unwrap().write_all(&lines).unwrap();
    }

    /// Older files stand first: nobody writes to two at a time.
    fn in_turn(&self) -> [&Delivered; 3] {
        let present = self.present.load(Relaxed);
        [&self.taken, &self.files[present ^ 1], &self.files[present]]
    }
}

impl Target for Shared {
    fn url(&self, _relay: usize) -> String {
        let file = self.file().path().display();
        if self.refuses.load(Relaxed) {
            format!("file://{file}?max_event_bytes={REFUSED_BYTES_MIN}")
        } else {
            format!("file://{file}")
        }
    }

    fn hosts(&self, _relay: usize) -> Option<String> {
        None
    }

    fn proxy(&self, _relay: usize) -> Option<&Proxy> {
        None
    }

    fn is_shared_out(&self) -> bool {
        false
    }

    fn broker(&self) -> Option<&dyn Broker> {
        None
    }

    fn files(&self) -> Option<&Shared> {
        Some(self)
    }

    fn accept_all(&self) {
        self.refuses.store(false, Relaxed);
    }

    fn arrived(&self) -> u64 {
        self.in_turn().into_iter().map(Delivered::lines).sum()
    }

    fn deliveries(&self) -> Vec<Delivery> {
        let files = self.in_turn().map(Delivered::path).into_iter();
        let files = files.filter(|path| path.exists());
        files
            .flat_map(|path| lines::read(path).unwrap())
            .map(|line| Delivery::of_line(&line.unwrap()))
            .collect()
    }
}
