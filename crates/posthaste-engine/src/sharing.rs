//! Which relay should own how many of a destination's partitions: advice, from what one relay sees.
//!
//! Every relay computes the same fair shares from the same members. Views may differ for a moment;
//! that is harmless, since only a claim decides, and nobody takes what a live relay owns. So a
//! relay that owns more than its share gives some up, a little at a time and only once nobody has
//! come or gone for a while, and one that owns less takes what is free. Counting instead of hashing
//! moves no partition that need not move.

use std::time::Duration;

use uuid::Uuid;

use crate::{Member, Moment, Shares, Want};

/// While somebody is about to leave, its partitions are looked for this often: delivery pauses for
/// their keys until they are found.
const LOOK_FOR_LEFT: Duration = Duration::from_millis(20);

/// A relay's next step about its share of a destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShareStep {
    /// Nothing now.
    Stay,
    /// [`crate::Ownership::revoke`] what expired relays own.
    Revoke,
    /// [`crate::Ownership::claim`] this much, once nothing is in flight.
    Claim(Want),
    /// [`crate::Ownership::withdraw`]: others reach the broker, we do not.
    Withdraw,
}

/// One relay's advice about one destination.
#[derive(Debug)]
pub struct Sharing {
    me: Uuid,
    together: bool,
    heartbeat: Duration,
    /// The members, and since when none has come or gone.
    members: Vec<Uuid>,
    unchanged_since: Moment,
    /// How many partitions were free, and since when as many.
    free: u16,
    free_since: Moment,
    /// Others have reached the broker, and we have not, since then.
    unreached_since: Option<Moment>,
    gave_up_at: Option<Moment>,
    recut_at: Option<Moment>,
    /// When we asked for more: how much we owned, how much was free, and when that was.
    asked: Option<(u16, u16, Moment)>,
}

impl Sharing {
    /// Advice for the relay registered as `me`, which renews its lease every `heartbeat`.
    /// `together`: all partitions are owned by one relay.
    #[must_use]
    pub fn new(me: Uuid, heartbeat: Duration, together: bool) -> Self {
        Self {
            me,
            together,
            heartbeat,
            members: Vec::new(),
            unchanged_since: Moment::default(),
            free: 0,
            free_since: Moment::default(),
            unreached_since: None,
            gave_up_at: None,
            recut_at: None,
            asked: None,
        }
    }

    /// The broker accepted something of ours: we reach it. Each look may find our lane ended all
    /// the same, over one event that another relay would fail over as well.
    pub fn reached(&mut self) {
        self.unreached_since = None;
    }

    /// The next step, by what is seen now.
    pub fn next(&mut self, shares: &Shares, now: Moment) -> ShareStep {
        self.notice(shares, now);
        let Some(me) = shares.member(self.me) else {
            return ShareStep::Stay;
        };
        if shares.dead > 0 {
            return ShareStep::Revoke;
        }
        if me.leaving {
            return ShareStep::Stay;
        }
        if self.together {
            let all_free = shares.free == shares.partitions;
            return if all_free {
                ShareStep::Claim(Want::All)
            } else {
                ShareStep::Stay
            };
        }
        if let Some(since) = self.unreached_since {
            let long = now >= since.after(self.heartbeat * 3);
            return if long {
                ShareStep::Withdraw
            } else {
                ShareStep::Stay
            };
        }
        self.share(shares, me, now)
    }

    fn share(&mut self, shares: &Shares, me: &Member, now: Moment) -> ShareStep {
        let fair = fair_shares(shares);
        let lack = |part: fn(&Fair) -> u16| fair.iter().any(|fair| fair.member.owned < part(fair));
        let mine = fair.iter().find(|fair| fair.member.registration == self.me);
        let (even, mine) = mine.map_or((0, 0), |fair| (fair.even, fair.share));
        let after = me.owned.saturating_add(shares.free);
        // The largest owners receive the remainder. All members agree on who that is once all own
        // their even part.
        let now_mine = if lack(|fair| fair.even) { even } else { mine };
        let two_beats_ago = |since: Moment| now >= since.after(self.heartbeat * 2);
        // The member that should take it may not be able to.
        let left_over = shares.free > 0 && two_beats_ago(self.free_since);
        let quiet = two_beats_ago(self.unchanged_since);
        let could_take = me.owned < me.partitions_max && me.reaches != Some(false);
        let more = match (shares.free > 0 && me.owned < now_mine, left_over) {
            (true, _) => Some(now_mine.min(after)),
            (false, true) if could_take => Some(me.partitions_max.min(after)),
            _ => None,
        };
        if let Some(more) = more.filter(|_| !self.asked_in_vain(me.owned, shares.free, now)) {
            self.asked = Some((me.owned, shares.free, now));
            return ShareStep::Claim(Want::AtMost(more));
        }
        let somebody_lacks = lack(|fair| fair.share);
        let waited = self
            .gave_up_at
            .is_none_or(|at| now >= at.after(self.heartbeat));
        if me.owned > mine && somebody_lacks && quiet && waited {
            self.gave_up_at = Some(now);
            let members = u16::try_from(shares.members.len()).unwrap_or(u16::MAX);
            let step = shares.partitions.div_ceil(members.saturating_mul(4).max(1));
            let keep = mine.max(me.owned.saturating_sub(step));
            return ShareStep::Claim(Want::AtMost(keep));
        }
        let waited = self
            .recut_at
            .is_none_or(|at| now >= at.after(self.heartbeat));
        if shares.recut && me.owned > 0 && waited {
            self.recut_at = Some(now);
            return ShareStep::Claim(Want::AtMost(me.owned));
        }
        ShareStep::Stay
    }

    /// A partition that is free while partitions are cut anew may fit to another owner only. A
    /// relay that asks for it all the same gets nothing, delivers nothing meanwhile, and would ask
    /// again at once.
    fn asked_in_vain(&self, owned: u16, free: u16, now: Moment) -> bool {
        self.asked.is_some_and(|(had, was_free, at)| {
            (had, was_free) == (owned, free) && now < at.after(self.heartbeat)
        })
    }

    /// When another look is worth its while, later than `now`; none: when the lease is renewed, or
    /// a read says that something changed.
    #[must_use]
    pub fn look_at(&self, shares: &Shares, now: Moment) -> Option<Moment> {
        let others = || shares.members.iter().filter(|m| m.registration != self.me);
        let leaving = others()
            .any(|m| m.leaving && m.owned > 0)
            .then(|| now.after(LOOK_FOR_LEFT));
        // The lease ends at that moment, not before it.
        let a_bit_later = Duration::from_millis(1);
        let expired = others().filter(|m| m.owned > 0).map(|m| m.lease_left);
        let expired = expired.min().map(|left| now.after(left + a_bit_later));
        let settled = shares.settled_in.map(|wait| now.after(wait + a_bit_later));
        [leaving, expired, settled].into_iter().flatten().min()
    }

    fn notice(&mut self, shares: &Shares, now: Moment) {
        let members: Vec<Uuid> = shares.members.iter().map(|m| m.registration).collect();
        if members != self.members {
            self.members = members;
            self.unchanged_since = now;
        }
        // While it changes, it is on its way to somebody.
        if shares.free != self.free {
            self.free = shares.free;
            self.free_since = now;
        }
        let reaches = |wanted: bool| move |m: &&Member| m.reaches == Some(wanted);
        let we_do_not = shares.member(self.me).is_some_and(|me| reaches(false)(&me));
        let others_do = shares.members.iter().any(|m| reaches(true)(&m));
        self.unreached_since =
            (we_do_not && others_do).then(|| self.unreached_since.unwrap_or(now));
    }
}

/// A member's fair share.
struct Fair<'a> {
    member: &'a Member,
    /// Without the remainder of the division.
    even: u16,
    share: u16,
}

/// The fair share of each member. Shares are equal, as far as a member takes them. A member that is
/// about to leave gets none, nor one that does not reach the broker while others do. The largest
/// owners receive the remainder.
fn fair_shares(shares: &Shares) -> Vec<Fair<'_>> {
    let reached = shares.members.iter().any(|m| m.reaches == Some(true));
    let cut_off = |m: &Member| reached && m.reaches == Some(false);
    let takes = |m: &&Member| !m.leaving && !cut_off(m);
    let fair = |member| Fair {
        member,
        even: 0,
        share: 0,
    };
    let mut takers: Vec<Fair<'_>> = shares.members.iter().filter(takes).map(fair).collect();
    takers.sort_by_key(|fair| {
        (
            std::cmp::Reverse(fair.member.owned),
            fair.member.registration,
        )
    });
    let mut left = shares.partitions;
    loop {
        let open = |fair: &&mut Fair<'_>| fair.share < fair.member.partitions_max;
        let open: Vec<&mut Fair<'_>> = takers.iter_mut().filter(open).collect();
        let count = u16::try_from(open.len()).unwrap_or(u16::MAX);
        if left == 0 || count == 0 {
            return takers;
        }
        let divides = left >= count;
        let each = (left / count).max(1);
        for fair in open {
            let room = fair.member.partitions_max - fair.share;
            let more = each.min(room).min(left);
            fair.share += more;
            left -= more;
            if divides {
                fair.even = fair.share;
            }
        }
    }
}

#[cfg(test)]
mod tests;
