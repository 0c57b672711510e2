//! The files that a broker reads at its start.

use super::{ADMIN, RELAY};

/// The acceptor of a broker, and who may come in.
#[derive(Debug, Clone, Copy)]
pub(super) struct Config<'a> {
    pub(super) port: u16,
    /// Parameters of the acceptor, each with a `;` in front.
    pub(super) acceptor: &'a str,
    /// Whether users log in.
    pub(super) has_logins: bool,
}

impl Config<'_> {
    /// `broker.xml`. Each accepted message is on the disk: with the least of files and of waiting.
    pub(super) fn broker(&self) -> String {
        let Self {
            port,
            acceptor,
            has_logins,
        } = self;
        format!(
            r##"<configuration xmlns="urn:activemq"><core xmlns="urn:activemq:core">
  <name>posthaste</name>
  <persistence-enabled>true</persistence-enabled>
  <security-enabled>{has_logins}</security-enabled>
  <journal-type>NIO</journal-type>
  <paging-directory>data/paging</paging-directory>
  <bindings-directory>data/bindings</bindings-directory>
  <journal-directory>data/journal</journal-directory>
  <large-messages-directory>data/large-messages</large-messages-directory>
  <journal-min-files>2</journal-min-files>
  <journal-pool-files>2</journal-pool-files>
  <journal-file-size>1M</journal-file-size>
  <journal-buffer-timeout>200000</journal-buffer-timeout>
  <critical-analyzer>false</critical-analyzer>
  <max-disk-usage>-1</max-disk-usage>
  <acceptors>
    <acceptor name="amqp">tcp://127.0.0.1:{port}?protocols=AMQP;useEpoll=false{acceptor}</acceptor>
  </acceptors>
  <security-settings>
    <security-setting match="#">{admins}</security-setting>
    <security-setting match="auto.allowed.#">{admins}
      <permission type="send" roles="admins,relays"/></security-setting>
  </security-settings>
  <address-settings>
    {settings}
  </address-settings>
</core></configuration>
"##,
            admins = permissions(),
            settings = address_settings(),
        )
    }

    pub(super) fn users(&self) -> String {
        [ADMIN, RELAY]
            .map(|(user, password)| format!("{user}={password}\n"))
            .concat()
    }
}

pub(super) const ROLES: &str = "admins=admin\nrelays=relay\n";

/// Logs in by password, or else by certificate.
pub(super) const LOGIN: &str = r#"
activemq {
  org.apache.activemq.artemis.spi.core.security.jaas.PropertiesLoginModule sufficient
    org.apache.activemq.jaas.properties.user="users.properties"
    org.apache.activemq.jaas.properties.role="roles.properties";
  org.apache.activemq.artemis.spi.core.security.jaas.TextFileCertificateLoginModule sufficient
    org.apache.activemq.jaas.textfiledn.user="certificates.properties"
    org.apache.activemq.jaas.textfiledn.role="roles.properties";
};
"#;

/// The name in certificates of the test kit.
pub(super) const CERTIFICATES: &str = "admin=CN=Posthaste test server\n";

pub(super) const MANAGEMENT: &str =
    r#"<management-context xmlns="http://activemq.apache.org/schema"/>"#;

/// `bootstrap.xml`, which names the other file by its whole path.
pub(super) fn bootstrap(broker_xml: &str) -> String {
    format!(
        r#"<broker xmlns="http://activemq.apache.org/schema">
  <jaas-security domain="activemq" certificate-domain="activemq"/>
  <server configuration="file:{broker_xml}"/>
</broker>
"#
    )
}

fn permissions() -> String {
    [
        "createNonDurableQueue",
        "createDurableQueue",
        "createAddress",
        "consume",
        "browse",
    ]
    .map(|right| format!(r#"<permission type="{right}" roles="admins"/>"#))
    .concat()
        + r#"<permission type="send" roles="admins"/>"#
}

/// An address is made as its name says: see [`super::ArtemisServer`].
fn address_settings() -> String {
    let of = |matched: &str, is_made: bool, more: &str| {
        format!(
            "<address-setting match=\"{matched}\">\
             <auto-create-queues>{is_made}</auto-create-queues>\
             <auto-create-addresses>{is_made}</auto-create-addresses>\
             <auto-delete-queues>false</auto-delete-queues>\
             <auto-delete-addresses>false</auto-delete-addresses>\
             {more}</address-setting>\n"
        )
    };
    let queues = "<default-address-routing-type>ANYCAST</default-address-routing-type>\
                  <default-queue-routing-type>ANYCAST</default-queue-routing-type>";
    let full = |policy: &str| {
        format!(
            "{queues}<max-size-bytes>200000</max-size-bytes>\
             <address-full-policy>{policy}</address-full-policy>"
        )
    };
    [
        of("#", true, ""),
        of("auto.#", true, queues),
        of("fixed.#", false, ""),
        of("fails.#", true, &full("FAIL")),
        of("blocks.#", true, &full("BLOCK")),
    ]
    .concat()
}
