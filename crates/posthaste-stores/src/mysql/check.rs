//! Whether a relay may start here.

use mysql_async::params;
use posthaste_engine::StoreError;

use super::{
    MysqlStore,
    config::HoleProof,
    connection::{Fields, Work},
    error::{misconfigured, unexpected},
    migrate,
    sample::{self, Trust},
};

impl MysqlStore {
    /// Reads alone, and changes nothing.
    pub(super) async fn check_all(&self) -> Result<(), StoreError> {
        let mut work = self.admin.work("check the store").await?;
        let result = check(&mut work, self.config.hole_proof, &self.trust).await;
        work.end(result).await
    }
}

async fn check(work: &mut Work, hole_proof: HoleProof, trust: &Trust) -> Result<(), StoreError> {
    migrate::check(work).await?;
    tables(work).await?;
    is_primary(work).await?;
    settings(work).await?;
    refuse_all_set_back(work).await?;
    proof(work, hole_proof, trust).await
}

fn wrong(work: &Work, reason: impl Into<String>) -> StoreError {
    misconfigured(work.operation(), reason)
}

/// The outbox and its cursors are of one engine, and numbers are drawn as we expect.
async fn tables(work: &mut Work) -> Result<(), StoreError> {
    let sql = "select table_name, engine from information_schema.tables \
               where table_schema = database() and table_name like 'posthaste\\_%' \
               and not (engine <=> 'InnoDB')";
    if let Some(row) = work.at_most_one(sql, ()).await? {
        let (table, engine) = (row.text(0)?, row.text_opt(1)?.unwrap_or_default());
        return Err(wrong(
            work,
            format!(
                "the table {table} is of the engine `{engine}`: only InnoDB's transactions hold \
                 the outbox and its cursors together\nfix: alter table {table} engine = InnoDB"
            ),
        ));
    }
    let row = work
        .at_most_one(include_str!("sql/check_seq.sql"), ())
        .await?;
    match row.map(|row| row.flag(0)).transpose()? {
        Some(true) => Ok(()),
        _ => Err(wrong(
            work,
            "posthaste_outbox.seq is no longer an unsigned BIGINT with AUTO_INCREMENT that is the \
             primary key alone: undo that change",
        )),
    }
}

/// Numbers are drawn, and transactions are open, on this server and on no other one.
async fn is_primary(work: &mut Work) -> Result<(), StoreError> {
    let variables = work
        .rows(include_str!("sql/check_variables.sql"), ())
        .await?;
    let mut group = (false, false);
    for row in &variables {
        let (name, value) = (row.text(0)?, row.text(1)?);
        let on = matches!(value.as_str(), "ON" | "1" | "YES");
        match name.as_str() {
            "read_only" | "super_read_only" if on => {
                return Err(wrong(
                    work,
                    format!(
                        "the server is read-only ({name}), as a replica is: give the address of \
                         the primary"
                    ),
                ));
            }
            "wsrep_on" if on => {
                return Err(wrong(
                    work,
                    "the server is a node of a Galera cluster: numbers are drawn on all of its \
                     nodes, and nobody can tell whether one of them will still commit. Galera is \
                     not supported",
                ));
            }
            "group_replication_group_name" => group.0 = !value.is_empty(),
            "group_replication_single_primary_mode" => group.1 = !on,
            "binlog_format" if value == "STATEMENT" => {
                return Err(wrong(
                    work,
                    "binlog_format is STATEMENT, which refuses transactions at READ COMMITTED and \
                     gives other ids to replicas: set it to ROW or MIXED",
                ));
            }
            _ => {}
        }
    }
    if group == (true, true) {
        return Err(wrong(
            work,
            "the server is a member of a group with several primaries: numbers are drawn on all of \
             them, and nobody can tell whether one will still commit\nfix: a group with a single \
             primary",
        ));
    }
    if replicates(work).await? {
        return Err(wrong(
            work,
            "the server applies the changes of another one: numbers that are drawn there cannot be \
             told from those that never come\nfix: give the address of the primary",
        ));
    }
    Ok(())
}

/// Whether a channel from another server is at work, as far as this user may know.
async fn replicates(work: &mut Work) -> Result<bool, StoreError> {
    let sql = "show global status like 'Slaves_running'";
    if let Some(row) = work.at_most_one(sql, ()).await? {
        return Ok(row.text(1)? != "0");
    }
    let sql = "select 1 from performance_schema.replication_applier_status \
               where service_state = 'ON' limit 1";
    match work.at_most_one(sql, ()).await {
        Ok(row) => Ok(row.is_some()),
        Err(StoreError::Denied { .. } | StoreError::Schema { .. }) => {
            tracing::warn!(
                "this user may not read performance_schema.replication_applier_status: that the \
                 server is no replica is not checked"
            );
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Tells of settings that cost something, and refuses none of them.
async fn settings(work: &mut Work) -> Result<(), StoreError> {
    let sql = "select @@global.auto_increment_increment, @@global.innodb_flush_log_at_trx_commit";
    let row = work.one(sql, ()).await?;
    let (step, flush): (i64, i64) = (row.get(0)?, row.get(1)?);
    if step > 1 {
        tracing::warn!(
            "auto_increment_increment is {step}: each event leaves numbers that have to be proven \
             to be empty"
        );
    }
    if flush != 1 {
        tracing::warn!(
            "innodb_flush_log_at_trx_commit is {flush}: a crash of the server takes events along \
             that were committed, and may have been delivered"
        );
    }
    Ok(())
}

/// There is a way to prove that no event will come for a number, or nobody wants one.
async fn proof(work: &mut Work, hole_proof: HoleProof, trust: &Trust) -> Result<(), StoreError> {
    if hole_proof == HoleProof::Nothing {
        return Ok(());
    }
    let doubt = match sample::instrument(work).await? {
        Ok(instrument) => match sample::sample(work, instrument, trust).await? {
            Ok(_) => return Ok(()),
            Err(doubt) => doubt,
        },
        Err(doubt) => doubt,
    };
    if hole_proof == HoleProof::Lock {
        return Ok(());
    }
    Err(wrong(
        work,
        format!(
            "a number that was drawn and is not there cannot be proven to be empty: {doubt}\n\
             fix: on MySQL leave performance_schema and the instrument wait/lock/metadata/sql/mdl \
             on, and run `posthaste init` with `--relay USER`; on MariaDB run `install soname \
             'metadata_lock_info'`, or start the server with performance_schema = ON and \
             performance-schema-instrument = 'wait/lock/metadata/sql/mdl=ON'; or add \
             `hole-proof=lock` to the address"
        ),
    ))
}

/// Refuses an outbox in which another event has the number that a cursor has passed.
pub(super) async fn refuse_drawn_again(
    work: &mut Work,
    high: u64,
    passed: Option<Vec<u8>>,
) -> Result<(), StoreError> {
    let Some(passed) = passed else {
        return Ok(());
    };
    let sql = "select id from posthaste_outbox where seq = :high";
    let found = work.at_most_one(sql, params! { "high" => high }).await?;
    match found.map(|row| row.get::<Vec<u8>>(0)).transpose()? {
        // Retention may have removed it.
        None => Ok(()),
        Some(id) if id == passed => Ok(()),
        Some(_) => Err(set_back(
            work,
            &format!("has another event under the number {high} than the one that was read"),
        )),
    }
}

/// Refuses a counter below a number that was read: it hides new events.
pub(super) async fn refuse_set_back(work: &mut Work, high: u64) -> Result<(), StoreError> {
    let sql = "select auto_increment from information_schema.tables \
               where table_schema = database() and table_name = 'posthaste_outbox'";
    // Not prepared: MySQL 8.0.15 answers such a statement with the number of its first run.
    let row = work.query(sql).await?.into_iter().next();
    let operation = work.operation();
    let row = row.ok_or_else(|| unexpected(operation, "the server does not list the outbox"))?;
    // None: no number was ever drawn.
    let next = Fields::of(operation, row)
        .get::<Option<u64>>(0)?
        .unwrap_or(1);
    // After a crash MySQL tells the last number that was drawn, until it draws the next one.
    if next >= high {
        return Ok(());
    }
    let found = format!("draws the number {next} next, and {high} was read of it");
    Err(set_back(work, &found))
}

/// The same for all cursors.
pub(super) async fn refuse_all_set_back(work: &mut Work) -> Result<(), StoreError> {
    let sql = "select high, high_id from posthaste_cursors order by high desc";
    let rows = work.rows(sql, ()).await?;
    let furthest = rows.first().map(|row| row.get(0)).transpose()?;
    refuse_set_back(work, furthest.unwrap_or(0)).await?;
    for row in &rows {
        refuse_drawn_again(work, row.get(0)?, row.get(1)?).await?;
    }
    Ok(())
}

fn set_back(work: &Work, found: &str) -> StoreError {
    wrong(
        work,
        format!(
            "the outbox {found}: the table was emptied or made anew and its counter set back, \
             which hides new events\nfix: alter table posthaste_outbox auto_increment to a number \
             above it; events that were written since stay hidden until they are written again"
        ),
    )
}
