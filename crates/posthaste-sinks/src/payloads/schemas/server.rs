//! The server of a registry, and what is asked of it.

use std::{borrow::Cow, collections::HashSet, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    Request, StatusCode,
    header::{ACCEPT, AUTHORIZATION, HeaderValue},
};
use posthaste_engine::{RejectionKind, SinkError};
use serde::Deserialize;
use tokio::{task::spawn_blocking, time::timeout};

use super::{
    fault::Fault,
    row::{CA_FILE, CERT_FILE, KEY_FILE, REGISTRY},
    schema::Schema,
    source::Source,
    subject::Asked,
};
use crate::{
    address::Address,
    requests::{
        ask::{ask, escaped},
        endpoint::Endpoint,
        refusal::excerpt,
    },
    transport::{KeptTls, Tls},
};

/// A schema with all that it refers to is here within this time, or never.
const LIMIT: Duration = Duration::from_secs(10);
/// The peer's kernel has so long to acknowledge what was sent.
const ACKNOWLEDGEMENT: Duration = Duration::from_secs(5);
/// Bytes of an answer at the most. Large schemas have some 100 KB.
const ANSWER_BYTES_MAX: usize = 4 << 20;
/// Schemas that one refers to, directly or not.
const REFERENCES_MAX: usize = 200;

/// A registry's address.
#[derive(Debug)]
pub(super) struct Server {
    endpoint: Endpoint,
    tls: Option<KeptTls>,
    /// The path before all others, without a slash at its end.
    path: String,
    login: Option<HeaderValue>,
}

/// A registry's answer about a version of a subject.
#[derive(Deserialize)]
struct Registered {
    id: u32,
    schema: String,
    #[serde(default, rename = "schemaType")]
    kind: Option<String>,
    #[serde(default)]
    references: Option<Vec<Reference>>,
}

#[derive(Clone, PartialEq, Eq, Hash, Deserialize)]
struct Reference {
    name: String,
    subject: String,
    version: u32,
}

/// A registry's refusal.
#[derive(Deserialize)]
struct Refused {
    error_code: u32,
    #[serde(default)]
    message: String,
}

impl Server {
    /// The server at an address; touches nothing yet.
    ///
    /// # Errors
    /// [`SinkError::Misconfigured`] with the fix.
    pub(super) fn of(url: &str) -> Result<Self, SinkError> {
        let address = Address::parse(url)?;
        let is_encrypted = match address.scheme() {
            "https" => true,
            "http" => false,
            _ => return Err(address.misconfigured(format!("write {}", REGISTRY.example))),
        };
        address.check(&REGISTRY)?;
        let mut authority = address.authority()?;
        let host = match authority.hosts.pop() {
            Some(host) if authority.hosts.is_empty() => host,
            _ => return Err(address.misconfigured("it has one server".to_owned())),
        };
        let with = "write `https://`";
        let files = [&CA_FILE, &CERT_FILE, &KEY_FILE];
        let tls = Tls::of(&address, files, is_encrypted, with, "write `http://`")?;
        let login = authority.user.map(|user| {
            let pair = format!("{}:{}", user.name, user.password.unwrap_or_default());
            let mut login = HeaderValue::from_str(&format!("Basic {}", STANDARD.encode(pair)))
                .map_err(|_| address.misconfigured("its login makes no header".to_owned()))?;
            login.set_sensitive(true);
            Ok(login)
        });
        let path = address.encoded_path().trim_matches('/');
        Ok(Self {
            endpoint: Endpoint { is_encrypted, host },
            tls: tls.map(KeptTls::new),
            path: match path {
                "" => String::new(),
                path => format!("/{path}"),
            },
            login: login.transpose()?,
        })
    }

    /// Its address without the login.
    pub(super) fn name(&self) -> String {
        let scheme = if self.endpoint.is_encrypted {
            "https"
        } else {
            "http"
        };
        format!("{scheme}://{}{}", self.endpoint.authority(), self.path)
    }

    /// Looks whether the registry answers, and takes the login.
    pub(super) async fn check(&self) -> Result<(), Fault> {
        let asked = timeout(LIMIT / 2, self.get("/schemas/types")).await;
        asked
            .unwrap_or_else(|_| Err(self.slow(LIMIT / 2)))
            .map(drop)
    }

    /// The schema, ready for use.
    pub(super) async fn schema(&self, asked: &Asked) -> Result<Schema, Fault> {
        let fetched = timeout(LIMIT, self.fetched(asked)).await;
        let (id, kind, source) = fetched.unwrap_or_else(|_| Err(self.slow(LIMIT)))?;
        // As long as it takes: nothing ends a thread, and another question would begin another one.
        let compiled = spawn_blocking(move || Schema::compile(id, &kind, &source)).await;
        let compiled = compiled.unwrap_or_else(|_| Err("it breaks its reader down".to_owned()));
        compiled.map_err(|fault| {
            let (fault, subject) = (excerpt(&fault, 500), &asked.subject);
            let fault = format!("schema {id} of the subject `{subject}` is of no use: {fault}");
            Fault::Refused(
                RejectionKind::Unroutable,
                fault,
                "register a better version",
            )
        })
    }

    async fn fetched(&self, asked: &Asked) -> Result<(u32, String, Source), Fault> {
        let main = self.registered(&asked.subject, asked.version).await?;
        let source = self.source(&main).await?;
        let kind = main.kind.unwrap_or_else(|| "AVRO".to_owned());
        Ok((main.id, kind, source))
    }

    /// The schema's text, with all that it refers to.
    async fn source(&self, main: &Registered) -> Result<Source, Fault> {
        enum Step<'r> {
            Ask(Cow<'r, Reference>),
            Found(String, String),
        }
        let mut source = Source {
            text: main.schema.clone(),
            references: Vec::new(),
        };
        let mut seen = HashSet::new();
        let own = main.references.iter().flatten().rev();
        let mut steps: Vec<_> = own.map(|one| Step::Ask(Cow::Borrowed(one))).collect();
        while let Some(step) = steps.pop() {
            let reference = match step {
                // All that it refers to is there.
                Step::Found(name, text) => {
                    source.references.push((name, text));
                    continue;
                }
                Step::Ask(reference) => reference.into_owned(),
            };
            if !seen.insert(reference.clone()) {
                continue;
            }
            if seen.len() > REFERENCES_MAX {
                return Err(Fault::Refused(
                    RejectionKind::Unroutable,
                    format!(
                        "schema {} refers to more than {REFERENCES_MAX} others",
                        main.id
                    ),
                    "register a simpler version",
                ));
            }
            let Reference {
                name,
                subject,
                version,
            } = reference;
            let found = self.registered(&subject, Some(version)).await?;
            steps.push(Step::Found(name, found.schema));
            let inner = found.references.into_iter().flatten().rev();
            steps.extend(inner.map(|one| Step::Ask(Cow::Owned(one))));
        }
        Ok(source)
    }

    async fn registered(&self, subject: &str, version: Option<u32>) -> Result<Registered, Fault> {
        let version = version.map_or_else(|| "latest".to_owned(), |number| number.to_string());
        let path = format!("/subjects/{}/versions/{version}", escaped(subject));
        let answer = self.get(&path).await?;
        serde_json::from_slice(&answer).map_err(|_| self.strange())
    }

    async fn get(&self, path: &str) -> Result<Bytes, Fault> {
        let mut request = Request::builder()
            .uri(format!("{}{path}", self.path))
            .header(
                ACCEPT,
                "application/vnd.schemaregistry.v1+json, application/json",
            );
        if let Some(login) = &self.login {
            request = request.header(AUTHORIZATION, login);
        }
        let request = request.body(Full::<Bytes>::default());
        let request = request.map_err(|_| self.strange())?;
        let tls = self.tls.as_ref();
        let asked = ask(
            &self.endpoint,
            tls,
            request,
            ACKNOWLEDGEMENT,
            ANSWER_BYTES_MAX,
        )
        .await;
        let (status, _, body) = asked.map_err(|error| {
            Fault::away(format!("the schema registry: {}", error.into_reason()))
        })?;
        match status {
            StatusCode::OK => Ok(body),
            status => Err(self.refusal(path, status, &body)),
        }
    }

    fn refusal(&self, path: &str, status: StatusCode, body: &[u8]) -> Fault {
        let refused: Option<Refused> = serde_json::from_slice(body).ok();
        let words = refused.as_ref().map_or_else(String::new, |refused| {
            format!(": {}", excerpt(&refused.message, 200))
        });
        let (name, status_code) = (self.name(), status.as_u16());
        let told = format!("the schema registry {name} answers {status_code} to GET {path}{words}");
        match (status, refused.map(|refused| refused.error_code)) {
            (StatusCode::NOT_FOUND, Some(40_400..=40_499)) => Fault::Refused(
                RejectionKind::Unroutable,
                told,
                "register the schema, or correct `schema_subject`",
            ),
            (StatusCode::NOT_FOUND, _) => Fault::Away(
                format!("{told}, as no registry does"),
                "correct the path in `schema_registry`",
            ),
            (StatusCode::UNAUTHORIZED, _) => {
                Fault::Away(told, "correct the login in `schema_registry`")
            }
            (StatusCode::FORBIDDEN, _) => Fault::Refused(
                RejectionKind::Denied,
                told,
                "give the relay's login the right to read this subject",
            ),
            (StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS, _) => Fault::away(told),
            (status, _) if status.is_client_error() => {
                Fault::Refused(RejectionKind::Unroutable, told, "correct `schema_subject`")
            }
            _ => Fault::away(told),
        }
    }

    fn strange(&self) -> Fault {
        Fault::away(format!(
            "what answers at {} is no schema registry",
            self.name()
        ))
    }

    fn slow(&self, limit: Duration) -> Fault {
        Fault::away(format!(
            "the schema registry {} gives no answer within {limit:?}",
            self.name()
        ))
    }
}
