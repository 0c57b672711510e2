//! How partitions pass from one relay to the next: one transaction, behind the lock of the
//! destination. The engine decides ([`ClaimDecision`]).

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use mysql_async::params;
use posthaste_engine::{
    AuditWords, ClaimDecision, ClaimOutcome, ClaimRequest, DestinationFound, OrderBy, Registered,
    ShareChange, Shares, StoreError, audit as words,
};
use uuid::Uuid;

use super::{
    audit, bits,
    connection::{Work, clock, micros},
    destination::{self, Found},
    error::unexpected,
    guard::Grant,
    settings,
    shares::{self, Group, count_of, former_text, groups},
};
use crate::about::About;

/// That the relay is not fenced. Its row is locked: nobody fences it while it changes who owns
/// what. Answers its name.
pub(super) async fn must_be_valid(
    work: &mut Work,
    relay: Registered,
) -> Result<String, StoreError> {
    let of = params! { "registration" => relay.registration.to_string() };
    let sql = "select name from posthaste_relays \
               where registration = :registration and fenced_at is null lock in share mode";
    let operation = work.operation();
    let row = work.at_most_one(sql, of).await?;
    row.ok_or(StoreError::Fenced { operation })?.text(0)
}

/// Fences a registration, or only if its lease is over.
pub(super) async fn fence(
    work: &mut Work,
    by: Registered,
    dead: Uuid,
    why: &str,
    if_over: bool,
) -> Result<(), StoreError> {
    let now = clock(work).await?;
    let registration = dead.to_string();
    let of = params! {
        "registration" => &registration,
        "now" => now,
        "over" => if if_over { now } else { i64::MAX },
    };
    if work
        .execute(include_str!("sql/relay_fence.sql"), of)
        .await?
        == 0
    {
        return Ok(());
    }
    let of = params! { "registration" => &registration };
    let sql = "select name from posthaste_relays where registration = :registration";
    let name = work.one(sql, of).await?.text(0)?;
    let served = shares::served(work, dead).await?;
    for (id, _) in served {
        destination::notice(work, id).await?;
    }
    let about = About {
        relay: Some(by.registration),
        ..About::default()
    };
    audit::write(work, words::FENCE, about, &[&name, &registration, &why]).await
}

/// Frees what dead relays own of the destination, whose lock is held.
pub(super) async fn revoke(
    work: &mut Work,
    by: Registered,
    destination_id: i64,
    settle: Duration,
) -> Result<(), StoreError> {
    let now = clock(work).await?;
    let found = groups(work, destination_id, now).await?;
    let others = found.iter().filter(|group| !group.live);
    let others = others.filter_map(|group| group.owner);
    let others: BTreeSet<Uuid> = others.filter(|owner| *owner != by.registration).collect();
    // Fenced before the epoch is raised: a renewal that slips in between would leave two owners.
    for owner in &others {
        fence(work, by, *owner, words::LEASE_OVER, true).await?;
    }
    let mut dead = BTreeSet::new();
    for owner in &others {
        let of = params! { "registration" => owner.to_string() };
        let sql = "select 1 from posthaste_relays \
                   where registration = :registration and fenced_at is null";
        if work.at_most_one(sql, of).await?.is_none() {
            dead.insert(*owner);
        }
    }
    let mut freed = 0;
    for group in found {
        let Some(owner) = group.owner.filter(|owner| dead.contains(owner)) else {
            continue;
        };
        let sql = "select name from posthaste_relays where registration = :registration";
        let of = params! { "registration" => owner.to_string() };
        let name = work.at_most_one(sql, of).await?.map(|row| row.text(0));
        let name = name.transpose()?.unwrap_or_default();
        let left = Left {
            by: owner,
            name: &name,
            dead: true,
            wait: settle,
        };
        free(work, &group, &left).await?;
        freed += 1;
    }
    let of = params! { "id" => destination_id };
    if freed > 0 {
        let sql = "update posthaste_cursors as c \
                   join posthaste_destinations as d on d.id = c.destination_id \
                   set c.epoch = d.epoch + 1 \
                   where c.destination_id = :id and c.relay is null and c.left_dead = 1";
        work.execute(sql, of.clone()).await?;
        let sql = "update posthaste_destinations set epoch = epoch + 1 where id = :id";
        work.execute(sql, of.clone()).await?;
    }
    let gone = work
        .execute(include_str!("sql/members_fenced.sql"), of)
        .await?;
    if freed > 0 || gone > 0 {
        destination::notice(work, destination_id).await?;
    }
    Ok(())
}

/// The relay that leaves a row of cursors.
pub(super) struct Left<'a> {
    pub(super) by: Uuid,
    pub(super) name: &'a str,
    pub(super) dead: bool,
    /// For so long its bytes may still arrive.
    pub(super) wait: Duration,
}

/// Frees a row of cursors. The settle time that stands there is never lowered.
pub(super) async fn free(
    work: &mut Work,
    group: &Group,
    left: &Left<'_>,
) -> Result<(), StoreError> {
    let not_before = match left.wait.is_zero() {
        true => 0,
        false => clock(work).await?.saturating_add(micros(left.wait)),
    };
    let mut former = group.former.clone();
    if left.dead || !left.wait.is_zero() {
        former.retain(|registration| *registration != left.by);
        former.push(left.by);
    }
    let of = params! {
        "id" => group.id,
        "not_before" => not_before,
        "former" => former_text(&former),
        "left_by" => left.by.to_string(),
        "left_name" => left.name.as_bytes(),
        "left_dead" => left.dead,
    };
    work.execute(include_str!("sql/release.sql"), of)
        .await
        .map(drop)
}

/// Gives up what the relay owns of the destination, whose lock is held, and serves it no longer.
pub(super) async fn give_up(
    work: &mut Work,
    relay: Registered,
    relay_name: &str,
    (destination_id, name): (i64, &str),
    unsettled: Duration,
    words: AuditWords,
) -> Result<(), StoreError> {
    destination::lock_cursors(work, destination_id).await?;
    let now = clock(work).await?;
    let mut partitions = 0;
    for group in groups(work, destination_id, now).await? {
        if group.owner != Some(relay.registration) {
            continue;
        }
        partitions += count_of(&group.partitions);
        let left = Left {
            by: relay.registration,
            name: relay_name,
            dead: false,
            wait: unsettled,
        };
        free(work, &group, &left).await?;
    }
    let of = params! {
        "destination_id" => destination_id, "registration" => relay.registration.to_string()
    };
    let sql = "delete from posthaste_members \
               where destination_id = :destination_id and registration = :registration";
    work.execute(sql, of).await?;
    destination::notice(work, destination_id).await?;
    if partitions > 0 {
        let about = About::relay(relay.registration, name);
        audit::write(work, words, about, &[&partitions]).await?;
    }
    Ok(())
}

/// How far a claim has come.
pub(super) enum Claiming {
    Done(Box<ClaimOutcome>),
    /// Copies up to this one were discarded first: it goes on in another transaction.
    After(i64),
    /// The destination came or went meanwhile: once more from the beginning.
    Again,
}

/// One transaction of a claim.
pub(super) async fn claim(
    work: &mut Work,
    relay: Registered,
    request: &ClaimRequest<'_>,
    after: i64,
) -> Result<Claiming, StoreError> {
    let (us, name) = (relay.registration, request.destination);
    let relay_name = must_be_valid(work, relay).await?;
    let Some(found) = destination::find(work, name).await? else {
        destination::create(work, name, request.start, us).await?;
        return Ok(Claiming::Again);
    };
    if !destination::lock(work, found.id).await? {
        return Ok(Claiming::Again);
    }
    destination::lock_cursors(work, found.id).await?;
    let again = destination::discard_read_again(work, (found.id, name), after, us).await?;
    if let Some(last) = again {
        return Ok(Claiming::After(last));
    }
    revoke(work, relay, found.id, request.settle).await?;
    // As it is behind the lock.
    let Some(found) = destination::find(work, name)
        .await?
        .filter(|now| now.id == found.id)
    else {
        return Ok(Claiming::Again);
    };
    if request.is_elsewhere(work.operation(), &found.address)? {
        let shares = shares_of(work, found.id).await?;
        if shares.is_served_beside(us) {
            let address = found.address;
            let elsewhere = ClaimOutcome::Elsewhere { address, shares };
            return Ok(Claiming::Done(Box::new(elsewhere)));
        }
    }
    if request.needs_relays_that_know_its_order()
        && let Some(older) = older_relay(work).await?
    {
        return Err(request.beside_older(work.operation(), &older));
    }
    let claim = OneClaim {
        relay,
        relay_name: &relay_name,
        request,
    };
    let outcome = claim.run(work, found).await?;
    Ok(Claiming::Done(Box::new(outcome)))
}

/// A live relay of a version that does not know the order of a key and a topic.
async fn older_relay(work: &mut Work) -> Result<Option<String>, StoreError> {
    /// The first one that knows it.
    const LEVEL: u32 = 3;
    let of = params! { "level" => LEVEL, "now" => clock(work).await? };
    let row = work
        .at_most_one(include_str!("sql/older_relay.sql"), of)
        .await?;
    row.map(|row| row.text(0)).transpose()
}

async fn shares_of(work: &mut Work, destination_id: i64) -> Result<Shares, StoreError> {
    let shares = shares::shares(work, destination_id).await?;
    shares.ok_or_else(|| unexpected(work.operation(), "a locked destination without shares"))
}

struct OneClaim<'a> {
    relay: Registered,
    relay_name: &'a str,
    request: &'a ClaimRequest<'a>,
}

impl OneClaim<'_> {
    async fn run(&self, work: &mut Work, mut found: Found) -> Result<ClaimOutcome, StoreError> {
        let (request, us) = (self.request, self.relay.registration);
        let mut standing = self.look(work, &found).await?;
        let finer = standing.finer();
        if let Some(finer) = finer {
            let count = found.partitions * finer;
            self.recut(work, &mut found, count).await?;
            standing = self.look(work, &found).await?;
        }
        let wanted_count = standing.wanted_count;
        let store_id = standing.store_id;
        let mut changes = standing.share_out(us, request, finer);
        for change in changes.iter_mut().filter(|change| change.splits()) {
            change.free_row = split(work, change, found.partitions).await?;
        }
        let decision = ClaimDecision::new(standing, us, &changes);
        self.apply(work, &found, &decision).await?;
        if decision.coarser().is_some() {
            self.recut(work, &mut found, wanted_count).await?;
        }
        let shares = shares_of(work, found.id).await?;
        let epoch = decision.epoch;
        let ver = match decision.owned.iter().min() {
            Some(&first) => {
                let sql = "select ver from posthaste_cursors where id = :id";
                work.one(sql, params! { "id" => first }).await?.get(0)?
            }
            None => 0,
        };
        decision.outcome(found.id, request, shares, |cursor_id, _| {
            Arc::new(Grant {
                destination_id: found.id,
                cursor_id,
                registration: us,
                order_by: OrderBy::of_target(request.address).0,
                epoch,
                store_id,
                ver,
            })
        })
    }

    async fn look(&self, work: &mut Work, found: &Found) -> Result<DestinationFound, StoreError> {
        let now = clock(work).await?;
        let groups = groups(work, found.id, now).await?;
        Ok(DestinationFound {
            count: found.partitions,
            wanted_count: settings::partitions(work).await?,
            epoch: found.epoch,
            wanted: found.wanted.clone(),
            breaker_open: destination::breaker_open(work, found.id).await?,
            store_id: settings::store_id(work).await?,
            groups: groups.into_iter().map(Group::found).collect(),
        })
    }

    /// Cuts the slots into `count` partitions. No slot changes its row.
    async fn recut(
        &self,
        work: &mut Work,
        found: &mut Found,
        count: u16,
    ) -> Result<(), StoreError> {
        let now = clock(work).await?;
        let before = found.partitions;
        for group in groups(work, found.id, now).await? {
            let partitions: BTreeSet<u16> = match count > before {
                true => {
                    let each = count / before;
                    let cut = |&p: &u16| (0..each).map(move |part| p * each + part);
                    group.partitions.iter().flat_map(cut).collect()
                }
                false => {
                    let block = before / count.max(1);
                    group.partitions.iter().map(|&p| p / block.max(1)).collect()
                }
            };
            let of = params! {
                "id" => group.id, "partitions" => bits::encode(partitions, count)
            };
            let sql = "update posthaste_cursors set partitions = :partitions where id = :id";
            work.execute(sql, of).await?;
        }
        let of = params! { "id" => found.id, "partitions" => count };
        let sql = "update posthaste_destinations \
                   set partitions = :partitions, shares_version = shares_version + 1 \
                   where id = :id";
        work.execute(sql, of).await?;
        let about = About::relay(self.relay.registration, self.request.destination);
        audit::write(work, words::RECUT, about, &[&before, &count]).await?;
        found.partitions = count;
        Ok(())
    }

    /// Writes who owns what, and enlists us.
    async fn apply(
        &self,
        work: &mut Work,
        found: &Found,
        decision: &ClaimDecision,
    ) -> Result<(), StoreError> {
        let (us, request) = (self.relay.registration, self.request);
        let now = clock(work).await?;
        for id in &decision.owned {
            let of = params! {
                "id" => id, "relay" => us.to_string(), "epoch" => decision.epoch
            };
            work.execute(include_str!("sql/claim.sql"), of).await?;
        }
        for group in groups(work, found.id, now).await? {
            if !decision.given_up.contains(&group.id) {
                continue;
            }
            let left = Left {
                by: us,
                name: self.relay_name,
                dead: false,
                wait: request.unsettled,
            };
            free(work, &group, &left).await?;
        }
        let enlisted = params! {
            "destination_id" => found.id,
            "registration" => us.to_string(),
            "partitions_max" => request.partitions_max,
        };
        let sql = "select 1 from posthaste_members where destination_id = :destination_id \
                   and registration = :registration and partitions_max = :partitions_max";
        let known = work.at_most_one(sql, enlisted.clone()).await?.is_some();
        if !known {
            work.execute(include_str!("sql/member_set.sql"), enlisted)
                .await?;
        }
        for (action, detail) in &decision.notes {
            let about = About::relay(us, request.destination);
            audit::write_line(work, action, about, detail).await?;
        }
        if !found.address.is_empty() && found.address != request.address {
            let about = About::relay(us, request.destination);
            let values: [&(dyn std::fmt::Display + Sync); 2] = [&found.address, &request.address];
            audit::write(work, words::ADDRESS_CHANGED, about, &values).await?;
        }
        let of = params! {
            "id" => found.id,
            "epoch" => decision.epoch,
            "address" => request.address,
            "raised" => i64::from(decision.moves || !known),
        };
        let sql = "update posthaste_destinations set epoch = :epoch, address = :address, \
                   shares_version = shares_version + :raised where id = :id";
        work.execute(sql, of).await.map(drop)
    }
}

/// Gives what is free of the row from now on a row of its own, at the same place; answers its id.
async fn split(work: &mut Work, change: &ShareChange, count: u16) -> Result<i64, StoreError> {
    let free = bits::encode(change.free.iter().copied(), count);
    let of = params! { "id" => change.id, "partitions" => free };
    let apart = work.insert(include_str!("sql/split.sql"), of).await?;
    let ours = bits::encode(change.ours.iter().copied(), count);
    let of = params! { "id" => change.id, "partitions" => ours };
    let sql = "update posthaste_cursors set partitions = :partitions where id = :id";
    work.execute(sql, of).await?;
    i64::try_from(apart).map_err(|_| unexpected(work.operation(), "a row's id beyond 2^63"))
}
