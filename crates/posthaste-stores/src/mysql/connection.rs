//! One connection to the server, and transactions on it.
//!
//! A connection on which an answer is missing is never used again: whoever works with it holds it,
//! and gives it back only when its work has ended. A call that is dropped drops its connection.

use std::{sync::Arc, time::Duration};

use mysql_async::{
    Conn, DriverError, Error, IoError, Opts, Params, Row,
    prelude::{FromValue, Queryable},
};
use posthaste_engine::StoreError;
use tokio::sync::{Mutex, OwnedMutexGuard, watch};

use super::{
    config::{MysqlConfig, SslMode},
    error::{classify, unavailable, unexpected},
};

/// All settings that our statements rest on. Each statement sees what is committed when it begins:
/// an old snapshot would "prove" that events will never come. A query cache would be one, too.
const SESSION: &str = "set names utf8mb4 collate utf8mb4_bin; \
     set session autocommit = 1, session time_zone = '+00:00', \
     session sql_mode = 'STRICT_ALL_TABLES', session lock_wait_timeout = 5, \
     session innodb_lock_wait_timeout = 5, session wait_timeout = 28800, \
     session completion_type = 0, session sql_select_limit = 18446744073709551615, \
     session sql_big_selects = 1, session sql_safe_updates = 0 \
     /*M!100000 , session query_cache_type = 0 , session max_statement_time = 0 */ \
     /*!80000 , session information_schema_stats_expiry = 0 , session max_execution_time = 0 */; \
     set session transaction isolation level read committed, read write";

/// A transaction whose relay stands still ends after so many seconds, so that it keeps no other
/// relay waiting for long.
const BEGIN: &str = "set session wait_timeout = 10; start transaction";
pub(super) const BEGIN_SNAPSHOT: &str = "set session wait_timeout = 10; \
     set transaction isolation level repeatable read; \
     start transaction with consistent snapshot, read only";
pub(super) const COMMIT: &str = "commit; set session wait_timeout = 28800";
const ROLLBACK: &str = "rollback; set session wait_timeout = 28800";

/// A connection that is made when it is first needed.
#[derive(Debug)]
pub(super) struct Link {
    config: Arc<MysqlConfig>,
    place: Arc<Mutex<Option<Conn>>>,
    /// Raised to end what is under way.
    ended: watch::Sender<u64>,
    /// One that was lost is made anew.
    again: bool,
}

/// A call, or a transaction, that holds its connection.
#[derive(Debug)]
pub(super) struct Work {
    operation: &'static str,
    conn: Option<Conn>,
    place: OwnedMutexGuard<Option<Conn>>,
    ended: watch::Receiver<u64>,
    in_transaction: bool,
}

impl Link {
    pub(super) fn new(config: &Arc<MysqlConfig>) -> Self {
        Self {
            config: Arc::clone(config),
            place: Arc::default(),
            ended: watch::Sender::new(0),
            again: true,
        }
    }

    /// One that is made now, and never anew.
    pub(super) async fn once(
        operation: &'static str,
        config: &Arc<MysqlConfig>,
    ) -> Result<Self, StoreError> {
        let conn = connect(operation, config).await?;
        Ok(Self {
            config: Arc::clone(config),
            place: Arc::new(Mutex::new(Some(conn))),
            ended: watch::Sender::new(0),
            again: false,
        })
    }

    /// Ends the connection, whoever works with it.
    pub(super) fn end(&self) {
        self.ended.send_modify(|count| *count += 1);
        // Its holder drops it.
        if let Ok(mut place) = self.place.try_lock() {
            *place = None;
        }
    }

    /// Statements that each commit by themselves.
    pub(super) async fn work(&self, operation: &'static str) -> Result<Work, StoreError> {
        let mut place = Arc::clone(&self.place).lock_owned().await;
        let ended = self.ended.subscribe();
        let conn = match place.take() {
            Some(conn) => conn,
            None if self.again => connect(operation, &self.config).await?,
            None => return Err(unavailable(operation, "the connection was lost")),
        };
        Ok(Work {
            operation,
            conn: Some(conn),
            place,
            ended,
            in_transaction: false,
        })
    }

    /// A transaction that changes something. Each of its statements sees what is committed.
    pub(super) async fn begin(&self, operation: &'static str) -> Result<Work, StoreError> {
        self.transaction(operation, BEGIN).await
    }

    /// A transaction that reads, all of it in one snapshot.
    pub(super) async fn snapshot(&self, operation: &'static str) -> Result<Work, StoreError> {
        self.transaction(operation, BEGIN_SNAPSHOT).await
    }

    async fn transaction(&self, operation: &'static str, begin: &str) -> Result<Work, StoreError> {
        let mut work = self.work(operation).await?;
        match work.run(begin).await {
            Ok(()) => {}
            // The server has ended an idle connection: nothing was asked on it yet.
            Err(StoreError::Unavailable { .. }) if self.again => {
                drop(work);
                work = self.work(operation).await?;
                work.run(begin).await?;
            }
            Err(error) => return Err(error),
        }
        work.in_transaction = true;
        Ok(work)
    }
}

impl Work {
    pub(super) fn operation(&self) -> &'static str {
        self.operation
    }

    /// Ends a transaction as its result asks, and gives the connection back where it is whole.
    pub(super) async fn end<T>(mut self, result: Result<T, StoreError>) -> Result<T, StoreError> {
        if matches!(result, Err(StoreError::Unavailable { .. })) {
            return result;
        }
        if self.in_transaction {
            let commits = result.is_ok();
            let ended = self.run(if commits { COMMIT } else { ROLLBACK }).await;
            match ended {
                Ok(()) => {}
                Err(error) if commits => return Err(error),
                // The first error is told; the connection goes.
                Err(_) => return result,
            }
        }
        *self.place = self.conn.take();
        result
    }

    async fn call<T>(
        &mut self,
        call: impl AsyncFnOnce(&mut Conn) -> Result<T, Error>,
    ) -> Result<T, StoreError> {
        let operation = self.operation;
        let Some(mut conn) = self.conn.take() else {
            return Err(unavailable(operation, "the connection was lost"));
        };
        let answer = tokio::select! {
            answer = call(&mut conn) => answer,
            _ = self.ended.changed() => {
                return Err(unavailable(operation, "the connection was ended"));
            }
        };
        match answer {
            Ok(answer) => {
                self.conn = Some(conn);
                Ok(answer)
            }
            Err(error) => {
                let error = classify(operation, error);
                // After anything else the transaction may go on, or be rolled back in order.
                if !matches!(error, StoreError::Unavailable { .. }) {
                    self.conn = Some(conn);
                }
                Err(error)
            }
        }
    }

    /// Statements without answers, in one packet.
    pub(super) async fn run(&mut self, sql: &str) -> Result<(), StoreError> {
        self.call(async |conn| conn.query_drop(sql).await).await
    }

    /// A statement as text.
    pub(super) async fn query(&mut self, sql: &str) -> Result<Vec<Row>, StoreError> {
        self.call(async |conn| conn.query(sql).await).await
    }

    /// A statement as text, whose rows are handed over one by one. A read that is told to end is
    /// read to its end all the same: the connection goes on.
    pub(super) async fn query_each(
        &mut self,
        sql: &str,
        mut each: impl FnMut(Row) -> Result<(), StoreError> + Send,
    ) -> Result<(), StoreError> {
        let mut failed = None;
        self.call(async |conn| {
            let mut result = conn.query_iter(sql).await?;
            while let Some(row) = result.next().await? {
                if failed.is_none() {
                    failed = each(row).err();
                }
            }
            result.drop_result().await
        })
        .await?;
        failed.map_or(Ok(()), Err)
    }

    /// Two statements in one packet: all rows of the first are the answer, those of the second are
    /// handed over one by one.
    pub(super) async fn query_page(
        &mut self,
        sql: &str,
        mut each: impl FnMut(Row) -> Result<(), StoreError> + Send,
    ) -> Result<Vec<Row>, StoreError> {
        let mut failed = None;
        let header = self
            .call(async |conn| {
                let mut result = conn.query_iter(sql).await?;
                let header = result.collect().await?;
                while let Some(row) = result.next().await? {
                    if failed.is_none() {
                        failed = each(row).err();
                    }
                }
                result.drop_result().await?;
                Ok(header)
            })
            .await?;
        failed.map_or(Ok(header), Err)
    }

    /// Runs a statement; answers how many rows it has found or changed.
    pub(super) async fn execute(
        &mut self,
        sql: &str,
        params: impl Into<Params> + Send,
    ) -> Result<u64, StoreError> {
        let params = params.into();
        self.call(async |conn| {
            conn.exec_drop(sql, params).await?;
            Ok(conn.affected_rows())
        })
        .await
    }

    /// Inserts a row; answers the number that it drew.
    pub(super) async fn insert(
        &mut self,
        sql: &str,
        params: impl Into<Params> + Send,
    ) -> Result<u64, StoreError> {
        let params = params.into();
        let drawn = self
            .call(async |conn| {
                conn.exec_drop(sql, params).await?;
                Ok(conn.last_insert_id())
            })
            .await?;
        drawn.ok_or_else(|| unexpected(self.operation, "a row that drew no number"))
    }

    /// Runs a statement that draws a number, or names one in its place; none: it changed nothing.
    pub(super) async fn numbered(
        &mut self,
        sql: &str,
        params: impl Into<Params> + Send,
    ) -> Result<Option<u64>, StoreError> {
        let params = params.into();
        self.call(async |conn| {
            conn.exec_drop(sql, params).await?;
            Ok(conn.last_insert_id().filter(|_| conn.affected_rows() > 0))
        })
        .await
    }

    pub(super) async fn rows(
        &mut self,
        sql: &str,
        params: impl Into<Params> + Send,
    ) -> Result<Vec<Fields>, StoreError> {
        let params = params.into();
        let operation = self.operation;
        let rows: Vec<Row> = self.call(async |conn| conn.exec(sql, params).await).await?;
        Ok(rows
            .into_iter()
            .map(|row| Fields { operation, row })
            .collect())
    }

    pub(super) async fn at_most_one(
        &mut self,
        sql: &str,
        params: impl Into<Params> + Send,
    ) -> Result<Option<Fields>, StoreError> {
        Ok(self.rows(sql, params).await?.into_iter().next())
    }

    pub(super) async fn one(
        &mut self,
        sql: &str,
        params: impl Into<Params> + Send,
    ) -> Result<Fields, StoreError> {
        let row = self.at_most_one(sql, params).await?;
        row.ok_or_else(|| unexpected(self.operation, "an answer without a row"))
    }
}

/// A row, whose columns are read by their places.
#[derive(Debug)]
pub(super) struct Fields {
    operation: &'static str,
    row: Row,
}

impl Fields {
    pub(super) fn of(operation: &'static str, row: Row) -> Self {
        Self { operation, row }
    }

    pub(super) fn row(&self) -> &Row {
        &self.row
    }

    pub(super) fn get<T: FromValue>(&self, column: usize) -> Result<T, StoreError> {
        let unreadable = || {
            let columns = self.row.columns_ref();
            let name = columns.get(column).map(|column| column.name_str());
            let name = name.unwrap_or_else(|| column.to_string().into());
            unexpected(
                self.operation,
                format!("the column `{name}` cannot be read"),
            )
        };
        let value = self.row.as_ref(column).ok_or_else(unreadable)?.clone();
        mysql_async::from_value_opt(value).map_err(|_| unreadable())
    }

    /// A text, where any bytes may stand.
    pub(super) fn text(&self, column: usize) -> Result<String, StoreError> {
        let bytes: Vec<u8> = self.get(column)?;
        Ok(String::from_utf8(bytes)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
    }

    pub(super) fn text_opt(&self, column: usize) -> Result<Option<String>, StoreError> {
        let bytes: Option<Vec<u8>> = self.get(column)?;
        Ok(bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
    }

    pub(super) fn flag(&self, column: usize) -> Result<bool, StoreError> {
        Ok(self
            .get::<Option<i64>>(column)?
            .is_some_and(|flag| flag != 0))
    }
}

/// A connection whose session is as our statements need it.
async fn connect(operation: &'static str, config: &MysqlConfig) -> Result<Conn, StoreError> {
    let connecting = async {
        let first = config.driver(operation, config.ssl_mode != SslMode::Disabled)?;
        let mut conn = match Conn::new(Opts::from(first)).await {
            Err(error) if config.ssl_mode == SslMode::Preferred && is_of_tls(&error) => {
                let plain = config.driver(operation, false)?;
                Conn::new(Opts::from(plain)).await
            }
            answer => answer,
        }
        .map_err(|error| classify(operation, error).at(&config.place()))?;
        conn.query_drop(SESSION)
            .await
            .map_err(|error| classify(operation, error).at(&config.place()))?;
        Ok(conn)
    };
    let limit = config.connect_timeout.max(Duration::from_millis(1));
    tokio::time::timeout(limit, connecting).await.map_err(|_| {
        let reason = format!("the server did not answer within {limit:?}");
        unavailable(operation, reason).at(&config.place())
    })?
}

/// Whether the server has no TLS, or none that we know.
fn is_of_tls(error: &Error) -> bool {
    match error {
        Error::Driver(DriverError::NoClientSslFlagFromServer) | Error::Io(IoError::Tls(_)) => true,
        // The words of rustls within a handshake come as an error of its stream.
        Error::Io(IoError::Io(error)) => error.kind() == std::io::ErrorKind::InvalidData,
        _ => false,
    }
}

/// Microseconds of a duration, as the tables have them.
pub(super) fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

/// From one time to a later one; nothing where that is past.
pub(super) fn until(now: i64, at: i64) -> Duration {
    Duration::from_micros(u64::try_from(at.saturating_sub(now)).unwrap_or(0))
}

/// A limit as the server takes it.
pub(super) fn limit_of(limit: usize) -> u64 {
    u64::try_from(limit).unwrap_or(u64::MAX)
}

/// The server's clock, in microseconds since 1970.
pub(super) async fn clock(work: &mut Work) -> Result<i64, StoreError> {
    work.one(
        "select timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))",
        (),
    )
    .await?
    .get(0)
}
