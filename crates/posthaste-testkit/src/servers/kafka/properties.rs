//! The lines of `server.properties`.

use crate::ports::Port;
use crate::ways::Ways;
use std::path::Path;

/// A name with a password on the listener [`sasl_ssl`](super::KafkaServer::sasl_ssl).
#[derive(Debug, Clone, Copy)]
pub struct SaslUser {
    /// The one mechanism by which it gets in, as clients spell it.
    pub mechanism: &'static str,
    /// The user's name.
    pub name: &'static str,
    /// Its password.
    pub password: &'static str,
}

/// The users of every secure broker.
pub const SASL_USERS: [SaslUser; 3] = [
    SaslUser {
        mechanism: "PLAIN",
        name: "plain-user",
        password: "plain correct horse",
    },
    SaslUser {
        mechanism: "SCRAM-SHA-256",
        name: "scram256-user",
        password: "scram256 correct horse",
    },
    SaslUser {
        mechanism: "SCRAM-SHA-512",
        name: "scram512-user",
        password: "scram512 correct horse",
    },
];

/// A broker that was killed hard starts again only when its former self counts as dead, with
/// Kafka's own setting after nine seconds. Shorter, a machine full of tests would seem dead too.
const SESSION_MS: u32 = 3_000;

/// A port a listener.
#[derive(Debug)]
pub(super) struct Ports {
    pub(super) client: Port,
    /// The kit's own and the broker's, past any proxy.
    pub(super) direct: Port,
    pub(super) controller: Port,
    pub(super) secure: Option<SecurePorts>,
    /// Listeners for one client each.
    pub(super) ways: Vec<Port>,
}

#[derive(Debug)]
pub(super) struct SecurePorts {
    pub(super) ssl: Port,
    pub(super) sasl_ssl: Port,
}

impl Ports {
    pub(super) fn reserve(secure: bool, ways: usize) -> Self {
        Self {
            client: Port::reserve(),
            direct: Port::reserve(),
            controller: Port::reserve(),
            secure: secure.then(|| SecurePorts {
                ssl: Port::reserve(),
                sasl_ssl: Port::reserve(),
            }),
            ways: (0..ways).map(|_| Port::reserve()).collect(),
        }
    }
}

/// Every broker's lines; clients are told to come to `client_port`, those of each way to its own.
pub(super) fn base(ports: &Ports, client_port: u16, ways: &Ways, data: &Path) -> String {
    let (client, direct) = (ports.client.number(), ports.direct.number());
    let controller = ports.controller.number();
    let (mut listeners, mut advertised) = (String::new(), String::new());
    if let Some(secure) = &ports.secure {
        let (ssl, sasl_ssl) = (secure.ssl.number(), secure.sasl_ssl.number());
        listeners = format!(",SSL://127.0.0.1:{ssl},SASL_SSL://127.0.0.1:{sasl_ssl}");
        advertised.clone_from(&listeners);
    }
    let mut protocols = String::new();
    for (number, (own, told)) in ports.ways.iter().zip(ways.addresses()).enumerate() {
        listeners.push_str(&format!(",WAY{number}://127.0.0.1:{}", own.number()));
        advertised.push_str(&format!(",WAY{number}://{told}"));
        protocols.push_str(&format!(",WAY{number}:PLAINTEXT"));
    }
    listeners.insert_str(
        0,
        &format!(
            "PLAINTEXT://127.0.0.1:{client},DIRECT://127.0.0.1:{direct},\
             CONTROLLER://127.0.0.1:{controller}"
        ),
    );
    advertised.insert_str(
        0,
        &format!("PLAINTEXT://127.0.0.1:{client_port},DIRECT://127.0.0.1:{direct}"),
    );
    format!(
        "listeners={listeners}\n\
         advertised.listeners={advertised}\n\
         listener.security.protocol.map=\
         CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,DIRECT:PLAINTEXT,SSL:SSL,SASL_SSL:SASL_SSL{protocols}\n\
         inter.broker.listener.name=DIRECT\n\
         controller.listener.names=CONTROLLER\n\
         controller.quorum.voters=1@127.0.0.1:{controller}\n\
         process.roles=broker,controller\n\
         node.id=1\n\
         log.dirs={data}\n\
         broker.session.timeout.ms={session_ms}\n\
         broker.heartbeat.interval.ms={heartbeat_ms}\n\
         auto.create.topics.enable=false\n\
         group.initial.rebalance.delay.ms=0\n\
         offsets.topic.num.partitions=4\n\
         offsets.topic.replication.factor=1\n\
         transaction.state.log.num.partitions=4\n\
         transaction.state.log.replication.factor=1\n\
         transaction.state.log.min.isr=1\n",
        data = data.display(),
        session_ms = SESSION_MS,
        heartbeat_ms = SESSION_MS / 6
    )
}

/// The lines of one more broker, of a cluster whose controller is the first node.
pub(super) fn joining(
    node: u32,
    client: &Port,
    direct: &Port,
    controller: u16,
    data: &Path,
) -> String {
    let (client, direct) = (client.number(), direct.number());
    let listeners = format!("PLAINTEXT://127.0.0.1:{client},DIRECT://127.0.0.1:{direct}");
    format!(
        "listeners={listeners}\n\
         advertised.listeners={listeners}\n\
         listener.security.protocol.map=\
         CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,DIRECT:PLAINTEXT\n\
         inter.broker.listener.name=DIRECT\n\
         controller.listener.names=CONTROLLER\n\
         controller.quorum.voters=1@127.0.0.1:{controller}\n\
         process.roles=broker\n\
         node.id={node}\n\
         log.dirs={data}\n\
         broker.session.timeout.ms={SESSION_MS}\n\
         broker.heartbeat.interval.ms={heartbeat_ms}\n\
         auto.create.topics.enable=false\n",
        data = data.display(),
        heartbeat_ms = SESSION_MS / 6
    )
}

/// The further settings of a secure broker; `certificate` is a PEM file with certificate and key.
pub(super) fn secure(certificate: &Path) -> String {
    let plain_users: String = SASL_USERS
        .iter()
        .filter(|user| user.mechanism == "PLAIN")
        .map(|user| format!(" user_{}=\"{}\"", user.name, user.password))
        .collect();
    let modules = "org.apache.kafka.common.security";
    format!(
        "ssl.keystore.type=PEM\n\
         ssl.keystore.location={certificate}\n\
         sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512\n\
         listener.name.sasl_ssl.plain.sasl.jaas.config=\
         {modules}.plain.PlainLoginModule required{plain_users};\n\
         listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config=\
         {modules}.scram.ScramLoginModule required;\n\
         listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config=\
         {modules}.scram.ScramLoginModule required;\n\
         authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer\n\
         super.users=User:ANONYMOUS\n",
        certificate = certificate.display()
    )
}

/// The settings that formatting a data folder asks for; its addresses are not kept.
pub(super) fn for_format(data: &Path) -> String {
    format!(
        "process.roles=broker,controller\n\
         node.id=1\n\
         controller.quorum.voters=1@127.0.0.1:9093\n\
         controller.listener.names=CONTROLLER\n\
         listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093\n\
         log.dirs={}\n",
        data.display()
    )
}

/// The users whose passwords live in the cluster's data, as the formatting tool wants them.
pub(super) fn scram_users() -> impl Iterator<Item = String> {
    let users = SASL_USERS
        .iter()
        .filter(|user| user.mechanism.starts_with("SCRAM"));
    users.map(|user| {
        format!(
            "{}=[name={},password={}]",
            user.mechanism, user.name, user.password
        )
    })
}
