//! Whether a relay may start on this database. Changes nothing.

use posthaste_engine::{StoreError, with_audit_words};
use tokio_postgres::{Client as Driver, Row};

use super::{
    claimed::set_back,
    client::Client,
    error::{FIX_ROW_SECURITY, classify},
    schema::{LEAVES, LEVEL},
};

const OPERATION: &str = "check";
const VERSION: &str = include_str!("sql/check_version.sql");
const RIGHTS: &str = include_str!("sql/check_rights.sql");
const ROW_SECURITY: &str = include_str!("sql/check_row_security.sql");
pub(super) const FOREIGN_TRIGGERS: &str = include_str!("sql/foreign_triggers.sql");
const SOUNDNESS: &str = include_str!("sql/check_soundness.sql");
const MIN_RELAY: &str = "select value from posthaste.settings where name = 'min_relay'";
const STANDBYS: &str = include_str!("sql/check_standbys.sql");
const COPY: &str = include_str!("sql/check_copy.sql");
const SYSTEM: &str = include_str!("sql/check_system.sql");
const SEQUENCE_SET_FORWARD: &str = include_str!("sql/sequence_set_forward.sql");

/// That the server is a primary was asked when the connection was made.
pub(super) async fn check(client: &Client) -> Result<(), StoreError> {
    version(client).await?;
    row_security(client).await?;
    min_relay(client, OPERATION).await?;
    let triggers = client.query_typed_one(FOREIGN_TRIGGERS, &[]).await;
    refuse_foreign_triggers(triggers, OPERATION)?;
    rights(client).await?;
    soundness(client).await?;
    if let Some(advice) = advice(client).await? {
        tracing::warn!("{advice}");
    }
    Ok(())
}

/// Refuses tables whose triggers others may set: their code would run as every writer's role.
pub(super) fn refuse_foreign_triggers(
    asked: Result<Row, tokio_postgres::Error>,
    operation: &'static str,
) -> Result<(), StoreError> {
    let found: Option<String> = asked.map_err(|error| classify(operation, error))?.get(0);
    found.map_or(Ok(()), |found| {
        Err(StoreError::Denied {
            operation,
            reason: format!(
                "{found}, whose code would run with the rights of all who write there: drop that \
                 role's triggers, and revoke trigger on all tables in schema posthaste from it"
            ),
        })
    })
}

/// Why another mode of retention would be better here, as far as this role may see.
pub(super) async fn advice(client: &Client) -> Result<Option<String>, StoreError> {
    let row = client
        .query_typed_one(STANDBYS, &[])
        .await
        .map_err(|error| classify(OPERATION, error))?;
    let truncates: bool = row.get("truncates");
    Ok((truncates && row.get("feedback")).then(|| {
        "a hot standby tells this server what its queries read, and retention truncates: that \
         cancels queries on the standby, or stops replay there. `posthaste init --retention-mode \
         delete --store URL` disturbs none of them"
            .to_owned()
    }))
}

pub(super) async fn version(client: &Client) -> Result<(), StoreError> {
    let row = client
        .query_typed_one(VERSION, &[])
        .await
        .map_err(|error| classify(OPERATION, error))?;
    let (version, min_relay): (i32, i32) = (row.get(0), row.get(1));
    if min_relay > LEVEL {
        return Err(newer(version));
    }
    if version < LEVEL {
        return Err(StoreError::Schema {
            operation: OPERATION,
            reason: format!(
                "the schema has version {version}, this build needs {LEVEL}: run `posthaste init \
                 --store URL`"
            ),
        });
    }
    Ok(())
}

/// Refuses to run beside relays that are newer than this build bears.
pub(super) async fn min_relay(client: &Client, operation: &'static str) -> Result<(), StoreError> {
    let row = client
        .query_typed_opt(MIN_RELAY, &[])
        .await
        .map_err(|error| classify(operation, error))?;
    refuse_older_relay(operation, row.as_ref().map(|row| row.get(0)))
}

/// The same, with the stored version at hand.
pub(super) fn refuse_older_relay(
    operation: &'static str,
    min_relay: Option<&str>,
) -> Result<(), StoreError> {
    const OURS: &str = env!("CARGO_PKG_VERSION");
    let Some(min_relay) = min_relay.filter(|min| numbers(OURS) < numbers(min)) else {
        return Ok(());
    };
    Err(StoreError::Schema {
        operation,
        reason: format!(
            "this relay has version {OURS}, and the setting min_relay asks for {min_relay} or \
             later: upgrade Posthaste"
        ),
    })
}

/// `major.minor.patch`, as far as these are numbers; the rest does not count.
fn numbers(version: &str) -> [u64; 3] {
    let mut parts = version
        .split(['.', '-', '+'])
        .map(|part| part.trim().parse().unwrap_or(0));
    [(); 3].map(|()| parts.next().unwrap_or(0))
}

pub(super) fn newer(version: i32) -> StoreError {
    StoreError::Schema {
        operation: OPERATION,
        reason: format!(
            "the schema has version {version} and asks for a newer Posthaste than this build, \
             which knows {LEVEL}: upgrade Posthaste"
        ),
    }
}

async fn rights(client: &Client) -> Result<(), StoreError> {
    let missing: Option<String> = client
        .query_typed_one(RIGHTS, &[])
        .await
        .map_err(|error| classify(OPERATION, error))?
        .get(0);
    missing.map_or(Ok(()), |missing| {
        Err(StoreError::Denied {
            operation: OPERATION,
            reason: format!(
                "missing rights: {missing}. Run `posthaste init --store URL --relay ROLE` as the \
                 schema's owner"
            ),
        })
    })
}

/// Refuses to run where a policy may hide rows of ours.
async fn row_security(client: &Client) -> Result<(), StoreError> {
    let tables: Option<String> = client
        .query_typed_one(ROW_SECURITY, &[])
        .await
        .map_err(|error| classify(OPERATION, error))?
        .get(0);
    tables.map_or(Ok(()), |tables| {
        Err(StoreError::Denied {
            operation: OPERATION,
            reason: format!("{tables}: {FIX_ROW_SECURITY}"),
        })
    })
}

pub(super) async fn soundness(client: &Client) -> Result<(), StoreError> {
    let row = client.query_typed_one(SOUNDNESS, &[]).await;
    let row = row.map_err(failed)?;
    refuse_incomplete(&row)?;
    refuse_sql_ascii(row.get("encoding")).map_err(wrong)?;
    let (cache, increment): (i64, i64) = (row.get("cache"), row.get("increment"));
    if cache != 1 || increment != 1 || row.get::<_, bool>("cycles") {
        return Err(wrong(
            "posthaste.outbox_seq_seq must count by 1, cache 1 and never cycle, or events get \
             lost: alter table posthaste.outbox alter column seq set increment 1 set cache 1 set \
             no cycle"
                .to_owned(),
        ));
    }
    refuse_copy(client, OPERATION).await?;
    if let Some((sequence, floor)) = below_floor(&row) {
        return Err(set_back(OPERATION, sequence, floor));
    }
    Ok(())
}

/// That nothing is missing of the outbox, and that nobody but its writers fills it; a copy is told,
/// too.
pub(super) async fn completeness(client: &Client) -> Result<(), StoreError> {
    let row = client.query_typed_one(SOUNDNESS, &[]).await;
    refuse_incomplete(&row.map_err(failed)?)
}

fn wrong(reason: String) -> StoreError {
    StoreError::Misconfigured {
        operation: OPERATION,
        reason,
    }
}

fn refuse_incomplete(row: &Row) -> Result<(), StoreError> {
    let leaves: i64 = row.get("leaves");
    if leaves != i64::from(LEAVES) {
        return Err(wrong(format!(
            "posthaste.outbox has {leaves} of its {LEAVES} leaves: what lies in the others would \
             be passed over. Attach them again (alter table posthaste.outbox attach partition \
             ...), or restore the whole schema posthaste"
        )));
    }
    if row.get("subscribed") {
        return Err(wrong(
            "a subscription writes into posthaste.outbox: its rows carry another server's \
             transaction numbers. Take the table out of the publication"
                .to_owned(),
        ));
    }
    Ok(())
}

/// The sequence and what was seen of it, where it was set back.
fn below_floor(row: &Row) -> Option<(i64, i64)> {
    let (sequence, floor) = (row.get("sequence"), row.get("floor"));
    (sequence < floor).then_some((sequence, floor))
}

/// Sets a sequence forward that was set back, so that no event which was written meanwhile is
/// hidden.
pub(super) async fn set_sequence_forward(client: &Client) -> Result<(), StoreError> {
    let failed = |error| classify("set the sequence forward", error);
    let found = client.query_typed_opt(SOUNDNESS, &[]).await;
    let Some((sequence, floor)) = found.map_err(failed)?.as_ref().and_then(below_floor) else {
        return Ok(());
    };
    let script = with_audit_words(SEQUENCE_SET_FORWARD)
        .replace("{floor}", &floor.to_string())
        .replace("{sequence}", &sequence.to_string());
    client.script(&script).await.map(drop).map_err(failed)
}

/// Refuses a copy that was not told to go on by itself. Asked at every claim too: a dump
/// may be restored under a running relay.
pub(super) async fn refuse_copy(
    client: &Client,
    operation: &'static str,
) -> Result<(), StoreError> {
    if !is_copy(client).await? {
        return Ok(());
    }
    Err(StoreError::Misconfigured {
        operation,
        reason: "this outbox is a copy (a restored dump, pg_upgrade or a template): its progress \
                 counts the original's transactions, and the original may still deliver. Make sure \
                 that the original no longer delivers, or events are sent twice; then run \
                 `posthaste init --store URL --new-era`: it tells how many events would be sent \
                 again, and with --yes carries the progress over, so that all that is pending is \
                 delivered from here"
            .to_owned(),
    })
}

/// Whether the database is another one than the outbox was made in, or had its last era begun in.
pub(super) async fn is_copy(client: &Client) -> Result<bool, StoreError> {
    is_copy_by(|sql| client.query_typed_opt(sql, &[])).await
}

/// The same inside a transaction.
pub(super) async fn is_copy_within(transaction: &Driver) -> Result<bool, StoreError> {
    is_copy_by(|sql| transaction.query_typed_opt(sql, &[])).await
}

async fn is_copy_by<A>(ask: impl Fn(&'static str) -> A) -> Result<bool, StoreError>
where
    A: Future<Output = Result<Option<Row>, tokio_postgres::Error>>,
{
    let row = ask(COPY).await.map_err(failed)?;
    let row = row.ok_or_else(|| StoreError::Schema {
        operation: OPERATION,
        reason: "posthaste.identity is empty: run `posthaste init --store URL` on a new schema"
            .to_owned(),
    })?;
    if row.get("copied") || !row.get::<_, bool>("has_system") {
        return Ok(row.get("copied"));
    }
    // A restored dump may have the same numbers: two servers count alike.
    if !row.get::<_, bool>("may_ask") {
        return Err(StoreError::Denied {
            operation: OPERATION,
            reason: "this role may not ask which server this is, so that a copy of the outbox \
                     would not be noticed: as a superuser, grant execute on function \
                     pg_catalog.pg_control_system() to this role"
                .to_owned(),
        });
    }
    let row = ask(SYSTEM).await.map_err(failed)?;
    Ok(row.is_some_and(|row| row.get(0)))
}

fn failed(error: tokio_postgres::Error) -> StoreError {
    classify(OPERATION, error)
}

pub(super) fn refuse_sql_ascii(encoding: &str) -> Result<(), String> {
    if encoding != "SQL_ASCII" {
        return Ok(());
    }
    Err(
        "the database's encoding is SQL_ASCII, which lets any bytes pass for text: use a database \
         with encoding UTF8"
            .to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_their_numbers() {
        assert!(numbers("0.9.10") > numbers("0.9.9"));
        assert!(numbers("1.0.0-rc.1") == numbers("1.0.0"));
        assert!(numbers("0.1") < numbers("0.1.1"));
        assert!(refuse_older_relay("test", None).is_ok());
        assert!(refuse_older_relay("test", Some("0.1.0")).is_ok());
        let refused = refuse_older_relay("test", Some("99.0.0")).unwrap_err();
        assert!(refused.to_string().contains("99.0.0"), "{refused}");
    }
}
