//! One connection: our settings, and statements that leave nothing behind where others come after
//! us.
//!
//! A transaction pooler gives each transaction any session of the server that is free, and the
//! session to an application afterwards. So no setting and no named statement may outlive a
//! transaction there: each statement is one of its own, which begins by setting what is ours. On a
//! session of our own the settings were made when it began, and statements that are sent often are
//! prepared.

use std::{
    convert::Infallible,
    ops::Deref,
    pin::Pin,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

use futures_util::{FutureExt, TryStreamExt, future::join};
use postgres_types::{ToSql, Type};
use tokio::sync::{Mutex, MutexGuard, oneshot};
use tokio_postgres::{
    Client as Driver, Error, IsolationLevel, Row, RowStream, SimpleQueryMessage, Statement,
};

use super::session_settings::{TRANSACTION_TIMEOUT, Work};

/// Held by the user of a connection, which ends soon after this is dropped.
pub(super) type Held = oneshot::Sender<Infallible>;

/// Without the modes a transaction would have the defaults of a session that is not ours.
const BEGIN: &str = "begin isolation level read committed read write not deferrable";

type Param<'a> = &'a (dyn ToSql + Sync);
/// A parameter and its type.
pub(super) type Typed<'a> = (Param<'a>, Type);

/// A connection. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Client {
    driver: Driver,
    /// Calls and transactions that have begun and not come to their end.
    unfinished: AtomicUsize,
    /// Tells the connection's task that nobody is left.
    _held: Held,
    /// None: the server's session is ours.
    pooled: Option<Pooled>,
}

#[derive(Debug)]
struct Pooled {
    settings: String,
    /// The statements of two transactions must not mix.
    turn: Mutex<()>,
}

impl Pooled {
    fn begin(&self) -> String {
        format!("{BEGIN}; {}", self.settings)
    }
}

/// A statement that is sent often, for the connection that made it.
#[derive(Debug)]
pub(super) struct Prepared {
    sql: String,
    types: &'static [Type],
    /// None behind a pooler.
    named: Option<Statement>,
}

impl Prepared {
    fn typed<'a>(&self, params: &[Param<'a>]) -> Vec<Typed<'a>> {
        let types = self.types.iter().cloned();
        params.iter().copied().zip(types).collect()
    }
}

/// The rows of a read, one after another.
pub(super) struct Rows<'a> {
    stream: Pin<Box<RowStream>>,
    _open: Option<Open<'a>>,
}

impl Rows<'_> {
    pub(super) async fn next(&mut self) -> Result<Option<Row>, Error> {
        self.stream.try_next().await
    }
}

/// The transaction of a read; it ends with this value.
struct Open<'a> {
    driver: &'a Driver,
    _turn: MutexGuard<'a, ()>,
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        // The driver sends at the first poll, and takes in what is answered by itself.
        drop(self.driver.batch_execute("rollback").now_or_never());
    }
}

/// Statements that are sent once in a while, without a name.
macro_rules! typed {
    ($($name:ident -> $answer:ty;)*) => {$(
        pub(super) async fn $name(
            &self,
            sql: &str,
            params: &[Typed<'_>],
        ) -> Result<$answer, Error> {
            let Some(pooled) = &self.pooled else {
                return self.finish(self.driver.$name(sql, params)).await;
            };
            let _turn = pooled.turn.lock().await;
            let begin = pooled.begin();
            // All are sent at the first poll, in this order: dropping this leaves no transaction
            // open.
            let ((begun, answer), ended) = self
                .finish(join(
                    join(self.driver.batch_execute(&begin), self.driver.$name(sql, params)),
                    self.driver.batch_execute("commit"),
                ))
                .await;
            begun?;
            let answer = answer?;
            ended.map(|()| answer)
        }
    )*};
}

impl Client {
    /// A connection whose session began with [`Work::options`].
    pub(super) async fn own(
        driver: Driver,
        held: Held,
        server_version: u32,
    ) -> Result<Self, Error> {
        let (setting, since) = TRANSACTION_TIMEOUT;
        if server_version >= since {
            driver.batch_execute(&format!("set {setting}")).await?;
        }
        Ok(Self::new(driver, held, None))
    }

    /// A connection through which each transaction gets another session.
    pub(super) fn pooled(driver: Driver, held: Held, server_version: u32, work: Work) -> Self {
        let pooled = Pooled {
            settings: work.local(server_version),
            turn: Mutex::new(()),
        };
        Self::new(driver, held, Some(pooled))
    }

    fn new(driver: Driver, held: Held, pooled: Option<Pooled>) -> Self {
        Self {
            driver,
            unfinished: AtomicUsize::new(0),
            _held: held,
            pooled,
        }
    }

    /// Whether its user left it as it was: open, without an answer that is still to come, which the
    /// next answer would wait behind, and without a transaction.
    pub(super) fn is_idle(&self) -> bool {
        !self.is_closed() && self.unfinished.load(Relaxed) == 0
    }

    pub(super) fn is_closed(&self) -> bool {
        self.driver.is_closed()
    }

    /// Counts the call as unfinished, for good if it is dropped in the midst.
    async fn finish<T>(&self, call: impl Future<Output = T>) -> T {
        self.unfinished.fetch_add(1, Relaxed);
        let answer = call.await;
        self.unfinished.fetch_sub(1, Relaxed);
        answer
    }

    pub(super) fn is_pooled(&self) -> bool {
        self.pooled.is_some()
    }

    typed! {
        query_typed -> Vec<Row>;
        query_typed_one -> Row;
        query_typed_opt -> Option<Row>;
        execute_typed -> u64;
    }

    pub(super) async fn prepare(
        &self,
        sql: String,
        types: &'static [Type],
    ) -> Result<Prepared, Error> {
        let named = match &self.pooled {
            None => Some(self.finish(self.driver.prepare_typed(&sql, types)).await?),
            Some(_) => None,
        };
        Ok(Prepared { sql, types, named })
    }

    /// Sends a statement that changes one row at the most, and answers something of it.
    pub(super) async fn change(
        &self,
        statement: &Prepared,
        params: &[Param<'_>],
    ) -> Result<Option<Row>, Error> {
        match &statement.named {
            Some(named) => self.finish(self.driver.query_opt(named, params)).await,
            None => {
                self.query_typed_opt(&statement.sql, &statement.typed(params))
                    .await
            }
        }
    }

    /// Sends a statement that changes nothing.
    pub(super) async fn read(
        &self,
        statement: &Prepared,
        params: &[Param<'_>],
    ) -> Result<Rows<'_>, Error> {
        if let Some(named) = &statement.named {
            let stream = self.driver.query_raw(named, params.iter().copied()).await?;
            return Ok(Rows {
                stream: Box::pin(stream),
                _open: None,
            });
        }
        let (open, begin) = match &self.pooled {
            None => (None, String::new()),
            Some(pooled) => {
                let open = Open {
                    driver: &self.driver,
                    _turn: pooled.turn.lock().await,
                };
                (Some(open), pooled.begin())
            }
        };
        let (begun, stream) = join(
            self.driver.batch_execute(&begin),
            self.driver
                .query_typed_raw(&statement.sql, statement.typed(params)),
        )
        .await;
        begun?;
        Ok(Rows {
            stream: Box::pin(stream?),
            _open: open,
        })
    }

    /// A transaction of several statements. Unless it is committed, the connection is not used for
    /// anything else.
    pub(super) async fn transaction(&mut self) -> Result<Transaction<'_>, Error> {
        self.unfinished.fetch_add(1, Relaxed);
        let transaction = self
            .driver
            .build_transaction()
            .isolation_level(IsolationLevel::ReadCommitted)
            .read_only(false)
            .deferrable(false)
            .start()
            .await?;
        if let Some(pooled) = &self.pooled {
            transaction.batch_execute(&pooled.settings).await?;
        }
        Ok(Transaction {
            transaction,
            unfinished: &self.unfinished,
        })
    }

    /// Runs a script of several statements as one transaction, in one round trip.
    pub(super) async fn script(&self, script: &str) -> Result<Vec<SimpleQueryMessage>, Error> {
        let begin = match &self.pooled {
            None => format!("{BEGIN};"),
            Some(pooled) => pooled.begin(),
        };
        let script = format!("{begin}\n{script}\ncommit");
        self.finish(self.driver.simple_query(&script)).await
    }

    /// Ends the transaction of a script that failed or whose caller went away.
    pub(super) async fn rollback(&self) -> Result<(), Error> {
        self.finish(self.driver.batch_execute("rollback")).await
    }

    /// Runs statements on a session of our own, where what they leave behind is meant to stay.
    pub(super) async fn batch_execute(&self, statements: &str) -> Result<(), Error> {
        self.finish(self.driver.batch_execute(statements)).await
    }
}

/// A transaction of a [`Client`]. Dropped, it is rolled back.
pub(super) struct Transaction<'a> {
    transaction: tokio_postgres::Transaction<'a>,
    unfinished: &'a AtomicUsize,
}

impl Transaction<'_> {
    pub(super) async fn commit(self) -> Result<(), Error> {
        self.transaction.commit().await?;
        self.unfinished.fetch_sub(1, Relaxed);
        Ok(())
    }
}

impl<'a> Deref for Transaction<'a> {
    type Target = tokio_postgres::Transaction<'a>;

    fn deref(&self) -> &Self::Target {
        &self.transaction
    }
}
