//! Where RabbitMQ's programs come from.

use crate::account::Account;
use std::path::PathBuf;

/// Not `/usr/sbin`: Debian's wrappers there change user and folder.
const FOLDERS: [&str; 3] = [
    "/usr/lib/rabbitmq/bin",
    "/opt/homebrew/opt/rabbitmq/sbin",
    "/usr/local/opt/rabbitmq/sbin",
];

/// The user that the package makes and that nodes run as when the tests run as root.
pub(super) fn account() -> Account {
    Account::unless_root("rabbitmq")
}

/// `rabbitmq-server` or `rabbitmqctl`.
pub(super) fn program(name: &str) -> PathBuf {
    let mut programs = FOLDERS
        .iter()
        .map(|folder| PathBuf::from(folder).join(name));
    programs
        .find(|program| program.exists())
        .unwrap_or_else(|| {
            panic!(
                "RabbitMQ is not installed (looked in {FOLDERS:?}); \
             ./test installs it, or by hand: apt-get install rabbitmq-server"
            )
        })
}
