//! One connection to a server: made, and asked something.

use std::time::Duration;

use ::redis::{
    AsyncConnectionConfig, Cmd, FromRedisValue, RedisConnectionInfo, aio::MultiplexedConnection,
    cmd,
};
use tokio::{task::JoinHandle, time::timeout};

use super::fault::ServerFault;
use crate::transport::{self, Stream, Tls};

/// A server without TLS waits for the end of a line that never comes. A little less than opening
/// may take in all, which could not say so.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(2);

/// How to log in. It has no `Debug`: it holds a password.
#[derive(Default)]
pub(super) struct Login {
    /// User and password; none: the server asks for none.
    pub(super) user: Option<(String, String)>,
    pub(super) database: u32,
    /// How to encrypt the connection, if it is to be.
    pub(super) tls: Option<Tls>,
}

/// A connection. Dropping it destroys the socket: what the kernel had not sent yet is thrown away.
pub(super) struct Connection {
    /// Clones of it end with the connection.
    pub(super) client: Client,
    driver: JoinHandle<()>,
}

/// The asking end of a connection. Each question is answered in its turn.
#[derive(Clone)]
pub(super) struct Client(MultiplexedConnection);

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Connection {
    /// Connects to `address`, which is `HOST:PORT`, and logs in. With TLS the peer has to prove
    /// that it is `host`. Takes as long as it takes: the caller sets the limit.
    ///
    /// # Errors
    /// Why there is no connection.
    pub(super) async fn open(
        login: &Login,
        host: &str,
        address: &str,
        patience: Duration,
    ) -> Result<Self, ServerFault> {
        let stream = transport::connect(address, patience).await?;
        let stream: Box<dyn Stream> = match &login.tls {
            Some(tls) => {
                let wrapped = timeout(HANDSHAKE_LIMIT, tls.wrap(host, stream)).await;
                Box::new(wrapped.map_err(|_| ServerFault::no_handshake(HANDSHAKE_LIMIT))??)
            }
            None => Box::new(stream),
        };
        // It says nothing by itself: the answer to a login is read here, with its words.
        let silent = RedisConnectionInfo::default().set_skip_set_lib_name();
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let (client, driver) = MultiplexedConnection::new_with_config(&silent, stream, config)
            .await
            .map_err(|error| ServerFault::of(&error))?;
        let mut connection = Self {
            client: Client(client),
            driver: tokio::spawn(driver),
        };
        connection.client.log_in(login).await?;
        Ok(connection)
    }
}

impl Client {
    async fn log_in(&mut self, login: &Login) -> Result<(), ServerFault> {
        if let Some((user, password)) = &login.user {
            let mut auth = cmd("AUTH");
            auth.arg(user).arg(password);
            let answer: Result<(), _> = auth.query_async(&mut self.0).await;
            answer.map_err(|error| ServerFault::of_login(&error))?;
        }
        if login.database != 0 {
            let mut select = cmd("SELECT");
            select.arg(login.database);
            self.ask::<()>(&select).await?;
        }
        Ok(())
    }

    /// Asks the server something, and waits for the answer.
    ///
    /// # Errors
    /// When the connection breaks, or the server refuses.
    pub(super) async fn ask<T: FromRedisValue>(
        &mut self,
        question: &Cmd,
    ) -> Result<T, ServerFault> {
        let answer = question.query_async(&mut self.0).await;
        answer.map_err(|error| ServerFault::of(&error))
    }
}
