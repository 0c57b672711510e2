//! Our login: a token, which is kept until shortly before it ends.

use std::time::Duration;

use posthaste_engine::Cause;
use tokio::{
    sync::Mutex,
    time::{Instant, timeout},
};

use super::{
    credentials::Search,
    token::{self, Token},
};
use crate::{
    requests::refusal::{Blame, Refusal},
    transport::KeptTls,
};

/// The search for credentials, and asking for a token, take no longer than this: outside of Google
/// Cloud a machine is asked that is not there. Less than opening, so that it is told what was
/// missing.
const TOKEN_LIMIT: Duration = Duration::from_millis(2_000);
/// A token is renewed so long before it ends, or at half of its time: time enough for a server of
/// tokens that is away for minutes.
const RENEWAL: Duration = Duration::from_secs(300);
/// Renewal that failed is tried again after this time, while the old token serves.
const RENEW_AGAIN: Duration = Duration::from_secs(10);

/// Finds credentials and keeps their token.
pub(super) struct Login {
    search: Search,
    /// To servers of tokens.
    tls: KeptTls,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    found: Option<Found>,
    /// When asking failed last.
    failed: Option<(Instant, Refusal)>,
}

#[derive(Debug)]
struct Found {
    token: Token,
    renew_at: Instant,
    ends_at: Instant,
}

impl Login {
    pub(super) fn new(search: Search, tls: KeptTls) -> Self {
        Self {
            search,
            tls,
            kept: Mutex::default(),
        }
    }

    /// The token, which serves for a while.
    ///
    /// # Errors
    /// There is none.
    pub(super) async fn token(&self) -> Result<Token, Refusal> {
        let asked = Instant::now();
        let mut kept = self.kept.lock().await;
        if let Some(found) = &kept.found
            && Instant::now() < found.renew_at
        {
            return Ok(found.token.clone());
        }
        // Others that have waited meanwhile would each wait as long again.
        if let Some((at, refusal)) = &kept.failed
            && *at > asked
        {
            return Err(refusal.clone());
        }
        let asking = timeout(TOKEN_LIMIT, self.ask()).await;
        let answer = asking.unwrap_or_else(|_| {
            let reason = format!("asking for a token: no answer within {TOKEN_LIMIT:?}");
            Err(Refusal::of_service(Cause::Connection, reason))
        });
        let now = Instant::now();
        match answer {
            Ok((token, lifetime)) => {
                kept.found = Some(Found {
                    token: token.clone(),
                    renew_at: now + lifetime.saturating_sub(RENEWAL.min(lifetime / 2)),
                    ends_at: now + lifetime,
                });
                kept.failed = None;
                Ok(token)
            }
            Err(refusal) => {
                if let Some(found) = kept.found.as_mut().filter(|found| now < found.ends_at) {
                    tracing::warn!(reason = refusal.reason, "the token was not renewed");
                    found.renew_at = found.ends_at.min(now + RENEW_AGAIN);
                    return Ok(found.token.clone());
                }
                kept.found = None;
                kept.failed = Some((now, refusal.clone()));
                Err(refusal)
            }
        }
    }

    async fn ask(&self) -> Result<(Token, Duration), Refusal> {
        // Each time anew, so that a renewed file counts.
        let credentials = self.search.find().await?;
        token::ask(&credentials, &self.tls).await
    }

    /// A request was refused: if it was over the token, the next one gets another.
    pub(super) fn refused(&self, refusal: &Refusal) {
        if refusal.blame != Blame::Service(Cause::Denied) {
            return;
        }
        // Another one that asks now needs no word.
        if let Ok(mut kept) = self.kept.try_lock() {
            kept.found = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        pubsub::{
            credentials::Environment,
            token::tests::{Answers, TokenServer},
        },
        transport::Tls,
    };

    fn login(server: &TokenServer) -> Login {
        let environment = Environment {
            metadata: server.address(),
            ..Environment::default()
        };
        Login::new(Search::new(None, environment), KeptTls::new(Tls::default()))
    }

    #[tokio::test]
    async fn a_token_is_kept_and_renewed_before_it_ends() {
        let server = TokenServer::start().await;
        let login = login(&server);
        for _ in 0..3 {
            assert_eq!(login.token().await.unwrap().bearer, "Bearer token-1");
        }
        // Its time is 1000 seconds.
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(699)).await;
        assert_eq!(login.token().await.unwrap().bearer, "Bearer token-1");
        tokio::time::advance(Duration::from_secs(2)).await;
        tokio::time::resume();
        assert_eq!(login.token().await.unwrap().bearer, "Bearer token-2");
    }

    #[tokio::test]
    async fn a_token_serves_while_it_cannot_be_renewed() {
        let server = TokenServer::start().await;
        let login = login(&server);
        login.token().await.unwrap();
        server.answer(Answers::Status("503 Service Unavailable"));
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(701)).await;
        tokio::time::resume();
        assert_eq!(login.token().await.unwrap().bearer, "Bearer token-1");
        let asked = server.asked();
        assert_eq!(login.token().await.unwrap().bearer, "Bearer token-1");
        assert_eq!(server.asked(), asked);
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(300)).await;
        tokio::time::resume();
        let refusal = login.token().await.unwrap_err();
        assert_eq!(refusal.blame, Blame::Service(Cause::Unknown), "{refusal:?}");
    }

    #[tokio::test]
    async fn a_token_that_is_refused_is_asked_for_again() {
        let server = TokenServer::start().await;
        let login = login(&server);
        login.token().await.unwrap();
        login.refused(&Refusal::of_service(Cause::Connection, "gone"));
        assert_eq!(login.token().await.unwrap().bearer, "Bearer token-1");
        login.refused(&Refusal::of_service(Cause::Denied, "expired"));
        assert_eq!(login.token().await.unwrap().bearer, "Bearer token-2");
    }

    /// They would wait for seconds each, one after the other.
    #[tokio::test]
    async fn calls_that_wait_for_a_token_fail_together() {
        let server = TokenServer::start().await;
        let login = login(&server);
        server.answer(Answers::Status("503 Service Unavailable"));
        let (one, other) = tokio::join!(login.token(), login.token());
        assert!(one.is_err() && other.is_err());
        assert_eq!(server.asked(), 1);
        server.answer(Answers::Tokens);
        login.token().await.unwrap();
    }
}
