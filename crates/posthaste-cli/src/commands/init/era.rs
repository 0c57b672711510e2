//! `posthaste init --new-era`: what a copied database's new era means, before it begins and
//! afterwards.

use posthaste_stores::{EraDestination, NewEra, StoreDescriptor};
use serde_json::{Value, json};

use crate::{
    failure::{Failure, Status},
    output,
    secret::SecretUrl,
};

/// The answer where there is nothing to do.
pub(super) const NO_COPY: &str = "This database is no copy: there is no new era to begin. After a \
     crash, a promotion or a recovery to an earlier point, relays go on by themselves.\n";

/// Tells what a new era would do, and changes nothing.
pub(super) async fn tell_plan(
    kind: &StoreDescriptor,
    url: SecretUrl,
    as_json_too: bool,
) -> Result<Status, Failure> {
    let plan = kind.plan_new_era(url.expose()).await?;
    if as_json_too {
        let plan = plan.as_ref().map(as_json);
        output::print_json(&json!({ "begun": false, "new_era": plan }))?;
        return Ok(Status::Done);
    }
    output::print(&match &plan {
        None => format!("{url}: {NO_COPY}"),
        Some(plan) => planned(&url.to_string(), plan),
    })?;
    Ok(Status::Done)
}

fn planned(url: &str, plan: &NewEra) -> String {
    format!(
        "{url}: this outbox is a copy. In a new era, which would begin behind seq {}:\n{}\
         Events that the original delivered after the copy was made, or still delivers, are sent \
         again too: stop the original first.\n\
         Nothing was changed. To begin the new era: posthaste init --store URL --new-era --yes\n",
        plan.last_seq,
        destinations(plan),
    )
}

/// Tells the effects of the new era that has begun.
pub(super) fn begun(era: &NewEra) -> String {
    format!(
        "A new era has begun behind seq {}:\n{}",
        era.last_seq,
        destinations(era)
    )
}

fn destinations(era: &NewEra) -> String {
    let mut text = String::new();
    if era.seq_given_twice {
        text.push_str(
            "  The sequence was behind the events when events were written here, so nothing can be \
             proven of them: every event that is kept is sent again.\n",
        );
    }
    if era.destinations.is_empty() {
        text.push_str("  There is no destination.\n");
    }
    for destination in &era.destinations {
        text.push_str(&line(destination));
    }
    text
}

fn line(destination: &EraDestination) -> String {
    let bound = if destination.counted { "" } else { "at most " };
    let blocked = match destination.blocked_keys {
        0 => String::new(),
        1 => "; 1 key stays blocked".to_owned(),
        keys => format!("; {} keys stay blocked", output::thousands(keys)),
    };
    let (was, is) = match destination.again_max {
        1 => ("was", "is"),
        _ => ("were", "are"),
    };
    format!(
        "  destination `{}`: {bound}{} pending, and at most {} that {was} delivered before {is} \
         sent again{blocked}\n",
        destination.name,
        events(destination.pending),
        events(destination.again_max),
    )
}

fn events(count: u64) -> String {
    match count {
        1 => "1 event".to_owned(),
        count => format!("{} events", output::thousands(count)),
    }
}

/// The contract of `init --new-era --json`.
pub(super) fn as_json(era: &NewEra) -> Value {
    let destinations = era.destinations.iter().map(|destination| {
        json!({
            "name": destination.name,
            "pending": destination.pending,
            "sent_again_max": destination.again_max,
            "counted": destination.counted,
            "blocked_keys": destination.blocked_keys,
        })
    });
    json!({
        "last_seq": era.last_seq,
        "seq_given_twice": era.seq_given_twice,
        "destinations": destinations.collect::<Vec<_>>(),
    })
}
