//! The endpoint of an address, and what its requests have in common.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hyper::header::{AUTHORIZATION, HOST, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use posthaste_engine::SinkError;

use super::{
    path::{PathPattern, may_stand},
    signature::Signer,
};
use crate::{
    address::{Address, authority::Host},
    descriptors::http::{
        ALLOW_PRIVATE, CA_FILE, CERT_FILE, EVENT_BYTES_MAX, FORMAT, HEADER_BYTES_MAX, HTTP,
        KEY_FILE, PROXY, PROXY_PASSWORD, REQUESTS, SECRET, SECRET_HEADERS, SECRET_QUERY, SOURCE,
    },
    transport::Tls,
};

/// How events stand in requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    Binary,
    Structured,
    Raw,
}

/// Where requests go, and what is the same in all of them. It has no `Debug`: it holds secrets.
pub(super) struct Target {
    pub(super) host: Host,
    /// None with `http:`.
    pub(super) tls: Option<Tls>,
    pub(super) path: PathPattern,
    /// With the `?` before it; may be a secret.
    query: String,
    pub(super) format: Format,
    pub(super) source: String,
    pub(super) signer: Signer,
    /// The headers of every request.
    pub(super) headers: HeaderMap,
    pub(super) proxy: Option<Proxy>,
    pub(super) allows_private: bool,
    pub(super) requests_max: u32,
    pub(super) event_bytes_max: Option<u64>,
    pub(super) header_bytes_max: usize,
    /// Endpoints that have accepted an event since they last refused one, on any lane: the topics,
    /// where each has its own, and otherwise one without a name.
    accepted: Mutex<HashSet<Arc<str>>>,
}

/// An HTTP proxy between us and the endpoint.
pub(super) struct Proxy {
    pub(super) host: Host,
    /// The value of `Proxy-Authorization`.
    pub(super) login: Option<HeaderValue>,
}

/// Endpoints that are remembered, before all are forgotten.
const PLACES_MAX: usize = 16_384;
/// So many connections are no favour to anybody.
const REQUESTS_MOST: u64 = 1_024;
const HTTP_PORT: u16 = 80;
const HTTPS_PORT: u16 = 443;
/// The port that proxies listen on by custom.
pub(super) const PROXY_PORT: u16 = 3128;

impl Target {
    pub(super) fn of(address: &Address) -> Result<Self, SinkError> {
        address.check(&HTTP.plug_in)?;
        let wrong = |reason: &str| address.misconfigured(reason.to_owned());
        let text = |option| address.text(option).unwrap_or_default();
        let mut authority = address.authority()?;
        let host = authority.hosts.remove(0);
        if !authority.hosts.is_empty() {
            return Err(wrong("an endpoint has one host"));
        }
        let tls = tls(address)?;
        let path = PathPattern::new(address.encoded_path()).map_err(wrong)?;
        let requests_max = address.number(&REQUESTS)?.unwrap_or_default();
        if requests_max > REQUESTS_MOST {
            return Err(wrong("`requests` is 1024 at the most"));
        }
        let source = text(&SOURCE);
        if source.is_empty()
            || !source
                .bytes()
                .all(|byte| may_stand(byte) || b"?#[]".contains(&byte))
        {
            return Err(wrong(
                "`source` is a URI, such as `https://shop.example/orders`",
            ));
        }
        let mut target = Self {
            host,
            tls,
            path,
            query: query(address)?,
            format: match text(&FORMAT) {
                "structured" => Format::Structured,
                "raw" => Format::Raw,
                _ => Format::Binary,
            },
            source: source.to_owned(),
            signer: match address.given(&SECRET) {
                Some(secrets) => Signer::new(secrets).map_err(wrong)?,
                None => Signer::default(),
            },
            headers: HeaderMap::new(),
            proxy: proxy(address)?,
            allows_private: text(&ALLOW_PRIVATE) == "true",
            requests_max: u32::try_from(requests_max).unwrap_or(u32::MAX),
            event_bytes_max: address.number(&EVENT_BYTES_MAX)?,
            header_bytes_max: address
                .number(&HEADER_BYTES_MAX)?
                .and_then(|bytes| usize::try_from(bytes).ok())
                .unwrap_or(usize::MAX),
            accepted: Mutex::default(),
        };
        target.headers = headers(address, &target)?;
        if let Some(user) = authority.user {
            let login = format!("{}:{}", user.name, user.password.unwrap_or_default());
            if target
                .headers
                .insert(AUTHORIZATION, basic(&login))
                .is_some()
            {
                return Err(wrong(
                    "a login before the `@` and a header `Authorization` are two",
                ));
            }
        }
        Ok(target)
    }

    /// The port that connections are made to, but for a proxy's.
    pub(super) fn port(&self) -> u16 {
        self.host.port.unwrap_or(self.default_port())
    }

    fn default_port(&self) -> u16 {
        match self.tls {
            Some(_) => HTTPS_PORT,
            None => HTTP_PORT,
        }
    }

    /// Its `HOST:PORT`.
    pub(super) fn address(&self) -> String {
        self.host.with_default_port(self.default_port())
    }

    /// Its name in errors. The path may hold a secret.
    pub(super) fn name(&self) -> String {
        format!("http {}", self.address())
    }

    /// The target of a request for this path.
    pub(super) fn uri(&self, path: &str) -> String {
        let query = &self.query;
        match (&self.proxy, &self.tls) {
            (Some(_), None) => format!("http://{}{path}{query}", self.authority()),
            _ => format!("{path}{query}"),
        }
    }

    /// The value of `Host`: without a port that the scheme implies.
    pub(super) fn authority(&self) -> String {
        let address = self.address();
        let implied = format!(":{}", self.default_port());
        address
            .strip_suffix(&implied)
            .unwrap_or(&address)
            .to_owned()
    }

    /// The endpoint has accepted an event.
    pub(super) fn note_accepted(&self, place: &Arc<str>) {
        let mut accepted = self.accepted();
        if !accepted.contains(place) {
            if accepted.len() >= PLACES_MAX {
                accepted.clear();
            }
            accepted.insert(Arc::clone(place));
        }
    }

    /// The endpoint refused an event, or us. Answers whether it had accepted an event since it last
    /// did: so it was this event that it refused, for all that anybody knows.
    pub(super) fn note_refused(&self, place: &str) -> bool {
        self.accepted().remove(place)
    }

    fn accepted(&self) -> MutexGuard<'_, HashSet<Arc<str>>> {
        // Nothing panics while it holds the lock.
        self.accepted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn tls(address: &Address) -> Result<Option<Tls>, SinkError> {
    let files = [&CA_FILE, &CERT_FILE, &KEY_FILE];
    let is_asked = address.scheme() == "https";
    Tls::of(
        address,
        files,
        is_asked,
        "write `https://`",
        "write `http://`",
    )
}

fn query(address: &Address) -> Result<String, SinkError> {
    let Some(query) = address.given(&SECRET_QUERY) else {
        return Ok(String::new());
    };
    let is_query = query.bytes().all(|byte| may_stand(byte) || byte == b'?');
    match is_query && !query.is_empty() {
        true => Ok(format!("?{query}")),
        false => Err(address.misconfigured(
            "`secret_query` is a query as it goes over the wire, with percent escapes, whose `%` \
             are written as %25"
                .to_owned(),
        )),
    }
}

fn proxy(address: &Address) -> Result<Option<Proxy>, SinkError> {
    let (given, login) = (address.given(&PROXY), address.given(&PROXY_PASSWORD));
    let wrong = |reason: &str| Err(address.misconfigured(reason.to_owned()));
    let Some(given) = given else {
        return match login {
            Some(_) => wrong("`proxy_password` is for a proxy; name it with `proxy`"),
            None => Ok(None),
        };
    };
    let parsed = Address::parse(&format!("proxy://{given}")).and_then(|proxy| proxy.authority());
    let host = match parsed {
        Ok(mut parsed)
            if parsed.hosts.len() == 1 && parsed.user.is_none() && parsed.path.is_none() =>
        {
            parsed.hosts.remove(0)
        }
        _ => return wrong("`proxy` is `HOST:PORT`, without a scheme and a login"),
    };
    if login.is_some_and(|login| !login.contains(':')) {
        return wrong("`proxy_password` is `USER:PASSWORD`");
    }
    Ok(Some(Proxy {
        host,
        login: login.map(basic),
    }))
}

/// The header of a login.
fn basic(login: &str) -> HeaderValue {
    let mut value = HeaderValue::try_from(format!("Basic {}", STANDARD.encode(login)))
        .unwrap_or(HeaderValue::from_static("Basic"));
    value.set_sensitive(true);
    value
}

/// Headers that are ours to fill, or that say how a request is cut.
const OURS: [&str; 14] = [
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "host",
    "keep-alive",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
];

/// Headers that begin so are ours to fill too.
const OUR_BEGINNINGS: [&str; 2] = ["ce-", "webhook-"];

fn headers(address: &Address, target: &Target) -> Result<HeaderMap, SinkError> {
    let mut headers = HeaderMap::new();
    let agent = concat!("posthaste/", env!("CARGO_PKG_VERSION"));
    headers.insert(USER_AGENT, HeaderValue::from_static(agent));
    let host = HeaderValue::try_from(target.authority());
    let host = host.map_err(|_| address.misconfigured("a host is a name".to_owned()))?;
    headers.insert(HOST, host);
    if let (
        Some(Proxy {
            login: Some(login), ..
        }),
        None,
    ) = (&target.proxy, &target.tls)
    {
        headers.insert(hyper::header::PROXY_AUTHORIZATION, login.clone());
    }
    let given = address.given(&SECRET_HEADERS).unwrap_or_default();
    for line in given
        .split('\n')
        .map(|line| line.trim_matches(['\r', ' ', '\t']))
    {
        if line.is_empty() {
            continue;
        }
        let (name, value) = header(line).map_err(|reason| address.misconfigured(reason))?;
        headers.append(name, value);
    }
    Ok(headers)
}

/// The header of a line. The reason of a refusal repeats nothing.
fn header(line: &str) -> Result<(HeaderName, HeaderValue), String> {
    const FORM: &str = "`secret_headers` has lines of `Name: value` in visible ASCII, with `%0A` \
                        between them";
    let (name, value) = line.split_once(':').ok_or(FORM)?;
    let (name, value) = (name.trim().to_ascii_lowercase(), value.trim());
    let header = HeaderName::try_from(&name).map_err(|_| FORM)?;
    let ours = OURS.iter().find(|ours| **ours == name);
    let begins = OUR_BEGINNINGS.iter().find(|ours| name.starts_with(**ours));
    if let Some(ours) = ours.or(begins) {
        return Err(format!(
            "`secret_headers` may not have `{ours}`, which is the sink's to fill"
        ));
    }
    let is_text = value.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    let value = HeaderValue::try_from(value).ok().filter(|_| is_text);
    let mut value = value.ok_or(FORM)?;
    value.set_sensitive(true);
    Ok((header, value))
}
