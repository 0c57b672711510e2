//! A token for credentials: made by ourselves for the key of a service account, and given by a
//! server otherwise.

use std::{
    fmt,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    HeaderMap, Method, Request, StatusCode, Uri,
    header::{CONTENT_TYPE, HeaderValue},
};
use posthaste_engine::{Cause, is_plain_name};
use ring::{
    rand::SystemRandom,
    signature::{RSA_PKCS1_SHA256, RsaKeyPair},
};
use rustls::pki_types::{PrivateKeyDer, pem::PemObject as _};
use serde::Deserialize;
use serde_json::json;

use super::{
    credentials::{AuthorizedUser, Credentials, ServiceAccount},
    dial::refusal,
};
use crate::{
    requests::{
        ask::{ask as ask_server, escaped},
        endpoint::Endpoint,
        refusal::Refusal,
    },
    transport::KeptTls,
};

/// The service that a token of our own is for.
const AUDIENCE: &str = "https://pubsub.googleapis.com/";
/// The longest time that Google takes.
const LIFETIME: Duration = Duration::from_secs(3_600);
/// Clocks differ: a token from the future is refused.
const CLOCK_MARGIN: Duration = Duration::from_secs(10);
/// Bytes of an answer. A token has some 1 000.
const ANSWER_BYTES_MAX: usize = 64 << 10;
/// The peer's kernel has so long to acknowledge what was sent.
const ACKNOWLEDGEMENT: Duration = Duration::from_secs(2);

/// The header by which a server of a machine shows that it is one, and a question that it means it.
const FLAVOR: &str = "metadata-flavor";
const GOOGLE: &str = "Google";
const MACHINE_PATH: &str = "/computeMetadata/v1/instance/service-accounts/default/token";

const FIX: &str = "; name a file of credentials with `credentials_file` or \
                   `GOOGLE_APPLICATION_CREDENTIALS`, or give the machine a service account";

/// A token, as a request bears it.
#[derive(Clone)]
pub(super) struct Token {
    /// Marked as secret, so that no log of the client's shows it.
    pub(super) bearer: HeaderValue,
    /// The project that pays, for logins of people.
    pub(super) quota_project: Option<HeaderValue>,
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").finish_non_exhaustive()
    }
}

/// A token, and how long it serves.
///
/// # Errors
/// There is none for these.
pub(super) async fn ask(
    credentials: &Credentials,
    tls: &KeptTls,
) -> Result<(Token, Duration), Refusal> {
    match credentials {
        Credentials::ServiceAccount(account) => {
            let now = SystemTime::now().duration_since(UNIX_EPOCH);
            let jwt = sign(
                account,
                now.unwrap_or_default().saturating_sub(CLOCK_MARGIN),
            )?;
            Ok((token(&jwt, None)?, LIFETIME - CLOCK_MARGIN))
        }
        Credentials::AuthorizedUser(user) => ask_for_user(user, tls).await,
        Credentials::Machine(host) => ask_machine(host).await,
    }
}

fn token(text: &str, quota_project: Option<&str>) -> Result<Token, Refusal> {
    let header = |text: &str, name| {
        HeaderValue::from_str(text).map_err(|_| {
            let reason = format!("the {name} makes no header: it has a line break, or the like");
            Refusal::of_service(Cause::Denied, reason)
        })
    };
    let mut bearer = header(&format!("Bearer {text}"), "token")?;
    bearer.set_sensitive(true);
    let quota_project = quota_project.map(|project| header(project, "project that pays"));
    Ok(Token {
        bearer,
        quota_project: quota_project.transpose()?,
    })
}

/// A token signed by the account's own key (JWT, RFC 7519), which serves from this time on.
fn sign(account: &ServiceAccount, now: Duration) -> Result<String, Refusal> {
    let wrong = |fault: &str| {
        let reason = format!("`private_key` of the service account {fault}; make a new key");
        Refusal::of_service(Cause::Denied, reason)
    };
    let key = PrivateKeyDer::from_pem_slice(account.private_key.as_bytes())
        .map_err(|_| wrong("is no key in PEM"))?;
    let key = match &key {
        PrivateKeyDer::Pkcs8(key) => RsaKeyPair::from_pkcs8(key.secret_pkcs8_der()),
        PrivateKeyDer::Pkcs1(key) => RsaKeyPair::from_der(key.secret_pkcs1_der()),
        _ => return Err(wrong("is no RSA key")),
    };
    let key = key.map_err(|_| wrong("is no RSA key that serves"))?;
    let header = json!({ "alg": "RS256", "typ": "JWT", "kid": account.private_key_id });
    let claims = json!({
        "iss": account.client_email,
        "sub": account.client_email,
        "aud": AUDIENCE,
        "iat": now.as_secs(),
        "exp": (now + LIFETIME).as_secs(),
    });
    let [header, claims] = [header, claims].map(|part| URL_SAFE_NO_PAD.encode(part.to_string()));
    let signed = format!("{header}.{claims}");
    let mut signature = vec![0; key.public().modulus_len()];
    key.sign(
        &RSA_PKCS1_SHA256,
        &SystemRandom::new(),
        signed.as_bytes(),
        &mut signature,
    )
    .map_err(|_| wrong("signs nothing"))?;
    Ok(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)))
}

/// A server's answer. It has no `Debug`.
#[derive(Deserialize)]
struct Given {
    access_token: String,
    expires_in: u64,
}

/// A server's refusal. Its other words may repeat what was sent.
#[derive(Deserialize)]
struct Refused {
    error: String,
}

async fn ask_for_user(user: &AuthorizedUser, tls: &KeptTls) -> Result<(Token, Duration), Refusal> {
    let wrong = || {
        let reason = "`token_uri` of the credentials is no address with `https:`";
        Refusal::of_service(Cause::Denied, reason)
    };
    let uri: Uri = user.token_uri.parse().map_err(|_| wrong())?;
    let server = uri
        .authority()
        .map(|authority| format!("https://{authority}"));
    let endpoint = server.and_then(|server| Endpoint::parse(&server));
    let is_encrypted = uri.scheme_str() == Some("https");
    let endpoint = endpoint.filter(|_| is_encrypted).ok_or_else(wrong)?;
    let question = form(&[
        ("grant_type", "refresh_token"),
        ("client_id", &user.client_id),
        ("client_secret", &user.client_secret),
        ("refresh_token", &user.refresh_token),
    ]);
    let request = Request::builder()
        .method(Method::POST)
        .uri(uri.path())
        .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
        .body(Full::from(question));
    let request = request.map_err(|_| wrong())?;
    let (status, _, body) = send(&endpoint, Some(tls), request).await?;
    let fix = "; log in again: `gcloud auth application-default login`";
    let given = given(status, &body, fix)?;
    let token = token(&given.access_token, user.quota_project_id.as_deref())?;
    Ok((token, Duration::from_secs(given.expires_in)))
}

/// Pairs as a form of a page sends them.
fn form(pairs: &[(&str, &str)]) -> String {
    let pairs = pairs
        .iter()
        .map(|(name, value)| format!("{name}={}", escaped(value)));
    pairs.collect::<Vec<_>>().join("&")
}

async fn ask_machine(host: &str) -> Result<(Token, Duration), Refusal> {
    let wrong = || {
        let reason = "`GCE_METADATA_HOST` is a host, with a port or without";
        Refusal::of_service(Cause::Misconfigured, reason)
    };
    let endpoint = Endpoint::parse(&format!("http://{host}")).ok_or_else(wrong)?;
    let request = Request::builder()
        .uri(MACHINE_PATH)
        .header(FLAVOR, GOOGLE)
        .body(Full::default())
        .map_err(|_| wrong())?;
    let answer = send(&endpoint, None, request).await;
    let (status, headers, body) = answer.map_err(|refusal| Refusal {
        reason: format!("{}{FIX}", refusal.reason),
        ..refusal
    })?;
    if headers.get(FLAVOR).is_none_or(|flavor| flavor != GOOGLE) {
        let reason = format!("what answers at `{host}` is no server of Google's machines{FIX}");
        return Err(Refusal::of_service(Cause::Denied, reason));
    }
    let given = given(status, &body, FIX)?;
    let token = token(&given.access_token, None)?;
    Ok((token, Duration::from_secs(given.expires_in)))
}

fn given(status: StatusCode, body: &[u8], fix: &str) -> Result<Given, Refusal> {
    let asked = format!(
        "asking for a token: the server answered {}",
        status.as_u16()
    );
    match status.as_u16() {
        200 => serde_json::from_slice(body).map_err(|_| {
            let reason = format!("{asked}, without a token");
            Refusal::of_service(Cause::Misconfigured, reason)
        }),
        429 | 500..=599 => Err(Refusal::of_service(Cause::Unknown, asked)),
        _ => {
            let refused = serde_json::from_slice(body).map(|Refused { error }| error);
            // A code such as `invalid_grant`; other words may repeat what was sent.
            let code = refused.ok().filter(|code| is_plain_name(code));
            let words = code.map_or_else(String::new, |code| format!(": {code}"));
            Err(Refusal::of_service(
                Cause::Denied,
                format!("{asked}{words}{fix}"),
            ))
        }
    }
}

/// Sends a request, and reads the answer.
async fn send(
    endpoint: &Endpoint,
    tls: Option<&KeptTls>,
    request: Request<Full<Bytes>>,
) -> Result<(StatusCode, HeaderMap, Bytes), Refusal> {
    let asked = ask_server(endpoint, tls, request, ACKNOWLEDGEMENT, ANSWER_BYTES_MAX).await;
    asked.map_err(|error| {
        let refusal = refusal(error);
        Refusal {
            reason: format!("asking for a token: {}", refusal.reason),
            ..refusal
        }
    })
}

#[cfg(test)]
pub(super) mod tests;
