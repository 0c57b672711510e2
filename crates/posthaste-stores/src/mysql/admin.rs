//! The operators' side: status, parked events, the audit.

use async_trait::async_trait;
use mysql_async::{Params, params};
use posthaste_engine::{
    Admin, AuditLine, DeadAction, DestinationState, HAND_OVERS, OrderBy, ParkedEvent, ParkedFilter,
    ParkedState, Status, StoreError, audit as words,
};
use serde_json::json;

use super::{
    MysqlStore, audit,
    connection::{Fields, Work, clock, limit_of},
    destination::{self, COPIES_A_TRANSACTION, close_parked, end_progress, find},
    error::unexpected,
    holds_key::with_holds_key,
    ordering::with_order,
    parking::event_id_text,
    row::{self, PARKED},
    status::status,
};
use crate::about::About;

/// Parked events that one transaction acts upon.
const ACTS_A_TRANSACTION: usize = 200;

#[async_trait]
impl Admin for MysqlStore {
    async fn status(&self) -> Result<Status, StoreError> {
        let mut work = self.admin.snapshot("read the status").await?;
        let result = status(&mut work).await;
        work.end(result).await
    }

    async fn hand_overs(&self, limit: usize) -> Result<Vec<AuditLine>, StoreError> {
        let mut work = self.admin.work("read the audit").await?;
        let result = hand_overs(&mut work, limit).await;
        work.end(result).await
    }

    async fn parked(
        &self,
        filter: &ParkedFilter,
        limit: usize,
    ) -> Result<Vec<ParkedEvent>, StoreError> {
        let mut work = self.admin.snapshot("list parked events").await?;
        let result = parked(&mut work, filter, limit).await;
        work.end(result).await
    }

    async fn act(&self, filter: &ParkedFilter, action: DeadAction) -> Result<u64, StoreError> {
        const OPERATION: &str = "act on parked events";
        if filter.undoes_skipping(action) {
            let mut after = Some(0);
            while let Some(behind) = after {
                let mut work = self.admin.begin(OPERATION).await?;
                let adopted = adopt(&mut work, filter, behind).await;
                after = work.end(adopted).await?;
            }
        }
        let (mut acted, mut after) = (0, 0);
        loop {
            let mut work = self.admin.begin(OPERATION).await?;
            let ids = act(&mut work, filter, action, after).await;
            let ids = work.end(ids).await?;
            acted += limit_of(ids.len());
            match ids.last() {
                Some(&last) => after = last,
                None => return Ok(acted),
            }
        }
    }

    async fn set_destination(
        &self,
        name: &str,
        state: DestinationState,
    ) -> Result<bool, StoreError> {
        let mut closed = 0;
        loop {
            let mut work = self.admin.begin("change a destination").await?;
            let set = set_destination(&mut work, name, state, closed).await;
            match work.end(set).await? {
                Set::Emptied(more) => closed += more,
                Set::Done => return Ok(true),
                Set::Unknown => return Ok(false),
            }
        }
    }

    async fn set_place(&self, name: &str, place: &str, paused: bool) -> Result<bool, StoreError> {
        let mut work = self.admin.begin("pause a place").await?;
        let result = set_place(&mut work, name, (place, paused)).await;
        work.end(result).await
    }
}

fn of_destination(name: &str) -> About<'_> {
    About {
        destination: Some(name),
        ..About::default()
    }
}

async fn set_place(
    work: &mut Work,
    name: &str,
    (place, paused): (&str, bool),
) -> Result<bool, StoreError> {
    let sql = "select id from posthaste_destinations where kept_name = :name for update";
    work.rows(sql, params! { "name" => name.as_bytes() })
        .await?;
    let Some(mut found) = find(work, name).await? else {
        return Ok(false);
    };
    if !found.wanted.set_place(place, paused, work.operation())? {
        return Ok(true);
    }
    let of = params! {
        "id" => found.id, "places" => json!(found.wanted.paused_places).to_string()
    };
    let sql = "update posthaste_destinations set paused_places = :places where id = :id";
    work.execute(sql, of).await?;
    audit::write(
        work,
        words::place_set(paused),
        of_destination(name),
        &[&place],
    )
    .await?;
    Ok(true)
}

/// How far a change of a destination's state has come.
enum Set {
    /// It is not removed yet: so many of its parked events were closed first.
    Emptied(u64),
    Done,
    /// There is no destination of this name.
    Unknown,
}

/// Changes the state, or goes on to: `closed` parked events are closed already.
async fn set_destination(
    work: &mut Work,
    name: &str,
    state: DestinationState,
    mut closed: u64,
) -> Result<Set, StoreError> {
    let Some(found) = find(work, name).await? else {
        return Ok(Set::Unknown);
    };
    if !destination::lock(work, found.id).await? {
        return Ok(Set::Unknown);
    }
    if state == DestinationState::Removed {
        destination::lock_cursors(work, found.id).await?;
        let more = close_parked(work, (found.id, name), closed).await?;
        if more == limit_of(COPIES_A_TRANSACTION) {
            let words = words::DESTINATION_EMPTIED;
            audit::write(work, words, of_destination(name), &[&more]).await?;
            return Ok(Set::Emptied(more));
        }
        closed += more;
        end_progress(work, found.id).await?;
    }
    let of = params! { "id" => found.id, "state" => state.as_str() };
    let sql = "update posthaste_destinations set state = :state where id = :id";
    work.execute(sql, of).await?;
    let words = words::destination_set(state);
    audit::write(work, words, of_destination(name), &[&closed]).await?;
    Ok(Set::Done)
}

async fn hand_overs(work: &mut Work, limit: usize) -> Result<Vec<AuditLine>, StoreError> {
    let actions: Vec<String> = HAND_OVERS
        .iter()
        .map(|action| format!("'{action}'"))
        .collect();
    let sql = include_str!("sql/hand_overs.sql").replace("{actions}", &actions.join(", "));
    let rows = work
        .rows(&sql, params! { "limit" => limit_of(limit) })
        .await?;
    let line = |row: &Fields| {
        Ok(AuditLine {
            at: row.get(0)?,
            action: row.text(1)?,
            relay: row.text_opt(2)?,
            destination: row.text_opt(3)?,
            detail: row.text(4)?,
        })
    };
    rows.iter().map(line).collect()
}

/// The parameters of a filter.
fn of_filter(filter: &ParkedFilter, more: Vec<(&str, mysql_async::Value)>) -> Params {
    let id = filter.id.map(|id| id.as_bytes().to_vec());
    let mut all: Vec<(String, mysql_async::Value)> = vec![
        (
            "destination".to_owned(),
            filter.destination.as_deref().map(str::as_bytes).into(),
        ),
        ("event_id".to_owned(), id.into()),
        (
            "key".to_owned(),
            filter.key.as_deref().map(str::as_bytes).into(),
        ),
        (
            "state".to_owned(),
            filter.state.map(ParkedState::as_str).into(),
        ),
    ];
    all.extend(
        more.into_iter()
            .map(|(name, value)| (name.to_owned(), value)),
    );
    Params::from(all)
}

async fn parked(
    work: &mut Work,
    filter: &ParkedFilter,
    limit: usize,
) -> Result<Vec<ParkedEvent>, StoreError> {
    let sql =
        with_order(&with_holds_key(include_str!("sql/parked_list.sql"))).replace("{copy}", PARKED);
    let of = of_filter(filter, vec![("limit", limit_of(limit).into())]);
    let rows = work.rows(&sql, of).await?;
    let operation = work.operation();
    rows.iter()
        .map(|row| parked_event(operation, row))
        .collect()
}

fn parked_event(operation: &'static str, row: &Fields) -> Result<ParkedEvent, StoreError> {
    let state = row.text(row::BEHIND + 1)?;
    let target = row.text(row::BEHIND + 8)?;
    let (order_by, _) = OrderBy::of_target(&target);
    Ok(ParkedEvent {
        destination: row.text(row::BEHIND)?,
        state: ParkedState::from_name(&state)
            .ok_or_else(|| unexpected(operation, format!("a parked event in state `{state}`")))?,
        attempts: row.get(row::BEHIND + 2)?,
        kind: row.text(row::BEHIND + 3)?,
        reason: row.text(row::BEHIND + 4)?,
        parked_at: row.get(row::BEHIND + 5)?,
        due_at: row.get(row::BEHIND + 6)?,
        holds_key: row.flag(row::BEHIND + 7)?,
        event: row::copy(operation, order_by, row.row())?,
    })
}

/// Skipped copies that a removed destination left go to the one that has its name now. Answers the
/// id of the last one of those behind `after`.
async fn adopt(
    work: &mut Work,
    filter: &ParkedFilter,
    after: i64,
) -> Result<Option<i64>, StoreError> {
    let of = of_filter(
        filter,
        vec![
            ("after", after.into()),
            ("limit", limit_of(ACTS_A_TRANSACTION).into()),
        ],
    );
    let rows = work
        .rows(&with_order(include_str!("sql/act_adopt.sql")), of)
        .await?;
    let mut last = None;
    for row in &rows {
        let (id, to): (i64, i64) = (row.get(0)?, row.get(1)?);
        let sql = with_order(include_str!("sql/act_adopted.sql"));
        work.execute(&sql, params! { "id" => id, "to" => to })
            .await?;
        last = Some(id);
    }
    Ok(last)
}

/// Acts on the next parked events behind `after`; answers their ids.
async fn act(
    work: &mut Work,
    filter: &ParkedFilter,
    action: DeadAction,
    after: i64,
) -> Result<Vec<i64>, StoreError> {
    // No destination is removed meanwhile: nothing may be left of it that waits.
    let sql = "select id from posthaste_destinations where state <> 'removed' \
               order by id lock in share mode";
    work.rows(sql, ()).await?;
    let now = clock(work).await?;
    let of = of_filter(
        filter,
        vec![
            ("after", after.into()),
            ("retry", i64::from(action == DeadAction::Retry).into()),
            ("discard", i64::from(action == DeadAction::Discard).into()),
            ("limit", limit_of(ACTS_A_TRANSACTION).into()),
        ],
    );
    let rows = work
        .rows(&with_order(include_str!("sql/act_candidates.sql")), of)
        .await?;
    let sql = match action {
        DeadAction::Retry => include_str!("sql/act_retry.sql"),
        DeadAction::Skip => include_str!("sql/act_skip.sql"),
        DeadAction::Discard => include_str!("sql/act_discard.sql"),
    };
    let mut ids = Vec::new();
    for row in &rows {
        let (id, seq): (i64, i64) = (row.get(0)?, row.get(2)?);
        let event_id = event_id_text(row.get::<Option<Vec<u8>>>(1)?.as_deref());
        let name = row.text(3)?;
        work.execute(sql, params! { "id" => id, "now" => now })
            .await?;
        let about = About {
            relay: None,
            destination: Some(&name),
            event_id: Some(&event_id),
        };
        audit::write(work, words::acted(action), about, &[&event_id, &seq]).await?;
        ids.push(id);
    }
    Ok(ids)
}
