//! An endpoint of webhooks that keeps what it accepts before it answers.

use posthaste_testkit::{
    proxy::Proxy,
    servers::http::{WebhookRequest, WebhookServer},
    ways::Ways,
};
use uuid::Uuid;

use super::{Broker, asks_its_server, is_answered};
use crate::{database::FACTS, judge::Delivery};

const OPTIONS: &str = "?format=raw&allow_private=true";

/// A server with a place for the torture's events, and one for probes.
pub struct Http {
    server: WebhookServer,
    proxy: Proxy,
    ways: Ways,
}

impl Http {
    /// For so many relays with ways of their own.
    pub fn for_relays(count: usize) -> Self {
        let server = WebhookServer::start();
        Self {
            proxy: Proxy::to_local_port(server.port()).unwrap(),
            ways: Ways::to((0..count).map(|_| server.port())),
            server,
        }
    }
}

impl Broker for Http {
    fn url(&self) -> String {
        format!("{}{OPTIONS}", self.server.url_through(&self.proxy, FACTS))
    }

    fn way(&self, relay: usize) -> (String, &Proxy) {
        let url = format!("http://{}/{FACTS}{OPTIONS}", self.ways.host());
        (url, self.ways.proxy(relay))
    }

    fn proxy(&self) -> &Proxy {
        &self.proxy
    }

    asks_its_server!();

    fn probe(&self) -> bool {
        let says = "POST /probes HTTP/1.1\r\nHost: probe\r\nContent-Length: 0\r\n\r\n";
        is_answered(&self.proxy, says, "HTTP/1.1 200")
    }

    fn arrived(&self) -> u64 {
        u64::try_from(self.server.count(FACTS)).unwrap()
    }

    fn deliveries(&self) -> Vec<Delivery> {
        let requests = self.server.requests(FACTS);
        requests.iter().map(delivery).collect()
    }
}

fn delivery(request: &WebhookRequest) -> Delivery {
    let payload = String::from_utf8(request.body.clone()).unwrap();
    Delivery {
        key: request.header("key").unwrap().to_owned(),
        n: payload.trim_end().parse().unwrap(),
        id: Uuid::parse_str(request.header("id").unwrap()).unwrap(),
    }
}
