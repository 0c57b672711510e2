//! The calls to the store and the sink that go on beside a runner.

use std::{collections::HashSet, sync::Arc};

use posthaste_engine::{
    AdvanceOutcome, Budget, Change, ClaimMarkers, ClaimReports, Claimed, Cursor, Due, Lane,
    LaneSpec, Page, PutOff, SideRead, SideStep, Sink, SinkError, StoreError,
    rule::{Rule, left_out},
};
use tracing::warn;

/// The answer to a change.
pub(super) enum Changed {
    Done,
    Advanced(AdvanceOutcome),
    Due(Due),
    PutOff(Vec<PutOff>),
}

/// The answer to a step of the side read.
pub(super) enum SideAnswer {
    Opened(Box<dyn SideRead>),
    Read(Box<dyn SideRead>, Page),
    Advanced(Box<dyn SideRead>),
    Joined,
}

/// Opens a lane. A fence that compares no number is taken by that; then the lease is confirmed in
/// the database, then the fences of former owners are taken, then sending begins.
///
/// A refusal of the store ends the claim, as everywhere: opened again and again under a claim that
/// is void, a lane would never be anybody's.
pub(super) async fn open_lane(
    sink: Arc<dyn Sink>,
    spec: LaneSpec,
    confirm: impl Future<Output = Result<(), StoreError>>,
    reports: Arc<dyn ClaimReports>,
) -> Result<Result<Box<dyn Lane>, SinkError>, StoreError> {
    let (limit, former) = (spec.publish_timeout, spec.scope.former.clone());
    let destination = spec.scope.destination.clone();
    let late = |_| SinkError::Unavailable {
        target: sink.info().kind.to_owned(),
        reason: format!("no connection within {limit:?}"),
    };
    let opening = tokio::time::timeout(limit, sink.open_lane(spec)).await;
    let mut lane = match opening.map_err(late).flatten() {
        Ok(lane) => lane,
        Err(error) => return Ok(Err(error)),
    };
    let taking_over = async {
        confirm.await?;
        let taken_over = tokio::time::timeout(limit, lane.take_over()).await;
        let taken_over = taken_over.map_err(late).flatten();
        if taken_over.is_ok() && !former.is_empty() {
            reports.fences_taken(&former).await?;
        }
        if let Ok(Some(cluster)) = &taken_over
            && let Some(former) = reports.reached(cluster).await?
        {
            warn!(
                destination = %destination,
                "another cluster answers at its address: `{cluster}`, and `{former}` before. \
                 Events that were accepted there are not sent again"
            );
        }
        Ok(taken_over)
    };
    let refused = match taking_over.await {
        Ok(Ok(_)) => return Ok(Ok(lane)),
        Ok(Err(error)) => Ok(Err(error)),
        Err(error) => Err(error),
    };
    lane.abort().await;
    refused
}

/// The next page, and which of its keys are marked, where that is to be asked.
pub(super) async fn read(
    claimed: Arc<dyn Claimed>,
    budget: Budget,
    asks: bool,
) -> Result<(Page, HashSet<String>), StoreError> {
    let page = claimed.next(budget).await?;
    let keys = page.events.iter().filter_map(|event| event.order_key());
    let keys: HashSet<&str> = keys.filter(|_| asks).collect();
    if keys.is_empty() {
        return Ok((page, HashSet::new()));
    }
    let keys: Vec<String> = keys.into_iter().map(str::to_owned).collect();
    let marked = claimed.marked(&keys).await?;
    Ok((page, marked.into_iter().collect()))
}

pub(super) async fn make(claimed: Arc<dyn Claimed>, change: Change) -> Result<Changed, StoreError> {
    match change {
        Change::Park(events) if left_out(Rule::CursorWaitsForParkedCopy) => {
            tokio::spawn(async move { claimed.park(&events).await });
            Ok(Changed::Done)
        }
        Change::Park(events) => claimed.park(&events).await.map(|()| Changed::Done),
        Change::Settle { id, settlement } => claimed
            .settle(id, &settlement)
            .await
            .map(|()| Changed::Done),
        Change::Advance { up_to, finished } => claimed
            .advance(&up_to, &finished)
            .await
            .map(Changed::Advanced),
        Change::Report {
            breaker,
            last_error,
        } => claimed
            .report(breaker, last_error.as_deref())
            .await
            .map(|()| Changed::Done),
        Change::Due { limit } => claimed.due(limit).await.map(Changed::Due),
        Change::PutOff { after, limit } => claimed.put_off(after, limit).await.map(Changed::PutOff),
    }
}

pub(super) async fn side_step(
    markers: Arc<dyn ClaimMarkers>,
    side: Option<Box<dyn SideRead>>,
    step: SideStep,
) -> Result<SideAnswer, StoreError> {
    let opened = |side: Option<Box<dyn SideRead>>| {
        side.ok_or_else(|| StoreError::Bug {
            operation: "side read",
            reason: "a step before the side read was opened".into(),
        })
    };
    match step {
        SideStep::Open(keys) => markers.side_read(&keys).await.map(SideAnswer::Opened),
        SideStep::Read {
            left,
            budget,
            until,
        } => {
            let mut side = opened(side)?;
            side.leave(&left);
            read_side(side, budget, until).await
        }
        SideStep::Advance { left, at, finished } => {
            let mut side = opened(side)?;
            side.leave(&left);
            side.advance(&at, &finished).await?;
            Ok(SideAnswer::Advanced(side))
        }
        SideStep::Join { keys, at } => {
            drop(side);
            markers.join(&keys, &at).await.map(|()| SideAnswer::Joined)
        }
    }
}

async fn read_side(
    mut side: Box<dyn SideRead>,
    budget: Budget,
    until: Cursor,
) -> Result<SideAnswer, StoreError> {
    let page = side.next(budget, &until).await?;
    Ok(SideAnswer::Read(side, page))
}
