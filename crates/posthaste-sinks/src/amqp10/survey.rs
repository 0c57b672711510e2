//! A check's report of the broker.

use std::{sync::Arc, time::Duration};

use posthaste_engine::{CheckReport, Fact};

use crate::address::authority::Host;

use super::{
    client::{Connection, Patience, Session, attach},
    fault::{BrokerFault, Refusal, Told},
    lane::Target,
};

/// Names of hosts of Azure Service Bus end like this.
const SERVICE_BUS: &str = ".servicebus.windows.net";

/// Reports the broker, and the address where looking at it changes nothing.
///
/// # Errors
/// The connection ended, or the broker does not take us at the address.
pub(super) async fn survey(
    connection: Connection,
    hosts: &[Host],
    target: &Target,
    limit: Duration,
) -> Result<CheckReport, BrokerFault> {
    let mut report = CheckReport::default();
    let peer = connection.peer();
    let capabilities = peer.capabilities.join(" ");
    let facts = vec![
        Fact::new("product", peer.product.as_deref()),
        Fact::new("version", peer.version.as_deref()),
        Fact::seen("max_frame_size", peer.frame_max),
        Fact::new(
            "capabilities",
            (!capabilities.is_empty()).then_some(capabilities),
        ),
    ];
    report.part("broker", peer.container_id.clone(), facts);
    let patience = Patience {
        answer: limit,
        silence: limit,
    };
    let mut session = Session::new(connection, target.kind, patience);
    let mut largest = None;
    // Other brokers may make an address that somebody attaches to.
    if let Some(address) = target.addresses.only_address()
        && hosts.iter().all(|host| host.name.ends_with(SERVICE_BUS))
    {
        let address: Arc<str> = address.into();
        if let Some(why) = attach(&mut session, &address, limit).await? {
            return Err(Refusal::of(&why, Told::Link).of_only_address(&address));
        }
        largest = session.message_bytes_max(&address);
    }
    let facts = vec![Fact::new("max_message_size", largest)];
    report.part("address", target.addresses.text(), facts);
    // The answer is known; a broker that dies now will be noticed by the next check.
    let _ = tokio::time::timeout(limit, session.goodbye()).await;
    Ok(report)
}
