//! A check's report of the broker, as far as its `CONNACK` tells.

use posthaste_engine::{CheckReport, Fact};

use super::{
    client::{Connection, Qos, Version},
    fault::BrokerFault,
    lane::Target,
};

/// Refuses a broker that takes less than the address asks for.
///
/// # Errors
/// The option to change.
pub(super) fn expect_fit(connection: &Connection, target: &Target) -> Result<(), BrokerFault> {
    let terms = &connection.terms;
    if let Some(most) = terms.maximum_qos
        && most < target.qos as u8
    {
        let asked = target.qos as u8;
        let fix = match most {
            0 => "it cannot acknowledge messages; use another broker".to_owned(),
            most => format!("write `qos={most}`"),
        };
        let reason = format!("the broker takes QoS {most} at the most, not {asked}; {fix}");
        return Err(BrokerFault::setup(reason));
    }
    if target.retain && terms.retain_available == Some(false) {
        let reason = "the broker retains no messages; leave out `retain=true`";
        return Err(BrokerFault::setup(reason));
    }
    Ok(())
}

/// The broker's terms.
pub(super) fn report(connection: &Connection, address: String) -> CheckReport {
    let terms = &connection.terms;
    // A broker of MQTT 5 that says nothing of a limit has none; one of 3.1.1 cannot say.
    let (version, unlimited) = match connection.version {
        Version::V5 => ("5", true),
        Version::V3 => ("3.1.1", false),
    };
    let or = |said: Option<String>, otherwise: &str| {
        let otherwise = || unlimited.then(|| otherwise.to_owned());
        said.or_else(otherwise)
    };
    let most = (Qos::ExactlyOnce as u8).to_string();
    let text = |number: Option<u32>| number.map(|number| number.to_string());
    let facts = vec![
        Fact::seen("version", version),
        Fact::new(
            "maximum_qos",
            or(text(terms.maximum_qos.map(u32::from)), &most),
        ),
        Fact::new(
            "receive_maximum",
            or(text(terms.receive_maximum.map(u32::from)), "65535"),
        ),
        Fact::new(
            "maximum_packet_size",
            or(text(terms.maximum_packet_size), "no limit"),
        ),
        Fact::new(
            "retain_available",
            or(terms.retain_available.map(|is| is.to_string()), "true"),
        ),
        // It does not tell who has subscribed, nor what it keeps on its disk.
        Fact::new("persistence", None::<&str>),
    ];
    let mut report = CheckReport::default();
    report.part("broker", address, facts);
    report
}
