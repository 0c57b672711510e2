//! The conformance suite of stores: one list of cases that every plug-in is held to, the memory
//! store included.
//!
//! A plug-in brings a [`Fixture`] and declares what its database can do ([`Capability`]). Its
//! [`Row`] says what it *must* declare, so that declaring less is a failure; a case that does not
//! apply is listed as ignored, with its reason.
//!
//! Cases wait on signals and on times that the store itself names, never on guesses.

pub mod agreement;
mod bench;
mod cases;
mod event;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use libtest_mimic::{Failed, Trial};
use posthaste_engine::{AuditLine, Store, StoreError};
use uuid::Uuid;

pub use event::NewEvent;

use crate::suite;
use bench::Bench;
use cases::Case;

/// The abilities of a database, or its test set-up, beyond the contract's core.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Capability {
    /// A writer can take back a part of its transaction.
    Savepoints,
    /// Several writing transactions are open at once, so that one can commit late.
    OpenTogether,
    /// A transaction that commits late delays only itself.
    LateCommitDelaysOnlyItself,
    /// The fixture can crash the database, after which its counters begin a new life.
    Crash,
    /// The fixture can cut all connections.
    CutConnections,
    /// There is a schema with migrations.
    Migrations,
    /// Relays may own different partitions of a destination
    /// ([`posthaste_engine::StoreInfo::shares_out`]).
    SharesOut,
}

impl Capability {
    /// Why a case that needs it does not apply.
    fn reason(self) -> &'static str {
        match self {
            Self::Savepoints => "no savepoints",
            Self::OpenTogether => "one writer at a time",
            Self::LateCommitDelaysOnlyItself => "late commits delay others",
            Self::Crash => "counters never begin a new life",
            Self::CutConnections => "no connections to cut",
            Self::Migrations => "no schema",
            Self::SharesOut => "one relay owns a whole destination",
        }
    }
}

/// The capabilities of a store whose writers overlap and whose server can be crashed and cut off.
pub const SERVER: &[Capability] = {
    use Capability::{
        Crash, CutConnections, LateCommitDelaysOnlyItself, Migrations, OpenTogether, Savepoints,
        SharesOut,
    };
    &[
        Savepoints,
        OpenTogether,
        LateCommitDelaysOnlyItself,
        Crash,
        CutConnections,
        Migrations,
        SharesOut,
    ]
};

/// A plug-in under test, and what it must declare.
#[derive(Clone)]
pub struct Row {
    /// Makes its outboxes.
    pub fixture: Arc<dyn Fixture>,
    /// The capabilities that it must declare.
    pub expected: Vec<Capability>,
}

impl Row {
    /// A row with these capabilities.
    #[must_use]
    pub fn new(fixture: impl Fixture + 'static, expected: &[Capability]) -> Self {
        Self {
            fixture: Arc::new(fixture),
            expected: expected.to_vec(),
        }
    }

    /// The same without a capability.
    #[must_use]
    pub fn without(mut self, capability: Capability) -> Self {
        self.expected.retain(|expected| *expected != capability);
        self
    }
}

/// A plug-in under test.
#[async_trait]
pub trait Fixture: Send + Sync {
    /// The name of its row.
    fn name(&self) -> &'static str;

    /// Its abilities.
    fn capabilities(&self) -> Vec<Capability>;

    /// A fresh, empty outbox that nobody else uses, for a case that needs these capabilities: one
    /// that crashes the database wants a server of its own.
    async fn fresh(&self, needs: &[Capability]) -> Box<dyn Outbox>;
}

/// One outbox. Calls for which the capability is not declared are never made.
#[async_trait]
pub trait Outbox: Send + Sync {
    /// A handle of its own, as another process would have it.
    async fn store(&self) -> Arc<dyn Store>;

    /// A writer with a connection of its own, as an application has it.
    async fn writer(&self) -> Box<dyn Writer>;

    /// Stores for how long delivered events are kept.
    async fn set_retention(&self, window: Duration);

    /// Stores that delivered events go in small deletes alone, where that can be chosen.
    async fn only_delete(&self);

    /// Makes every line of the audit so much older.
    async fn age_audit(&self, by: Duration);

    /// Makes all that is set aside so much older, with what was attempted and decided of it.
    async fn age_parked(&self, by: Duration);

    /// Everything that the audit says, oldest first, each line as
    /// `action|relay|destination|detail`.
    async fn audit(&self) -> Vec<String>;

    /// Crashes the database and starts it again ([`Capability::Crash`]).
    async fn crash(&self) {
        panic!("the fixture declares `Crash` and does not crash");
    }

    /// Cuts every connection to the database ([`Capability::CutConnections`]).
    async fn cut_connections(&self) {
        panic!("the fixture declares `CutConnections` and does not cut them");
    }

    /// Creates or migrates the schema once more ([`Capability::Migrations`]).
    async fn init(&self) -> Result<(), StoreError> {
        panic!("the fixture declares `Migrations` and does not migrate");
    }

    /// Adds a line of a migration from the future, which only relays from the future may run beside
    /// ([`Capability::Migrations`]).
    async fn migrate_to_the_future(&self) {
        panic!("the fixture declares `Migrations` and knows no future");
    }

    /// Makes all registered relays look as those of the first version do
    /// ([`Capability::Migrations`]).
    async fn make_relays_old(&self) {
        panic!("the fixture declares `Migrations` and knows no past");
    }
}

/// A line of the audit, as [`Outbox::audit`] answers it.
#[must_use]
pub fn audit_text(line: &AuditLine) -> String {
    let (relay, destination) = (line.relay.as_deref(), line.destination.as_deref());
    let (relay, destination) = (relay.unwrap_or_default(), destination.unwrap_or_default());
    format!("{}|{relay}|{destination}|{}", line.action, line.detail)
}

/// A writer: an application with one connection. A failing call panics.
#[async_trait]
pub trait Writer: Send {
    /// Begins a transaction.
    async fn begin(&mut self);

    /// Writes an event in it; answers the event's id.
    async fn emit(&mut self, event: &NewEvent) -> Uuid;

    /// Sets a savepoint.
    async fn savepoint(&mut self);

    /// Takes back everything behind the savepoint.
    async fn rollback_to_savepoint(&mut self);

    /// Commits.
    async fn commit(&mut self);

    /// Rolls back.
    async fn rollback(&mut self);
}

/// The time of a store's row on two idle processors, at most.
const ROW_BUDGET: Duration = Duration::from_secs(40);
/// No case takes nearly this long; a hang is a failure with a name.
const CASE_LIMIT: Duration = Duration::from_secs(120);

/// Runs the suite for these plug-ins, and the tests in `more`: the `main` of a test with
/// `harness = false`.
#[must_use]
pub fn run(rows: &[Row], more: Vec<Trial>) -> ExitCode {
    suite::run(rows.iter().flat_map(trials).collect(), more)
}

/// The suite for one plug-in, named `plug-in::case`.
#[must_use]
pub fn trials(row: &Row) -> Vec<Trial> {
    let mut trials = vec![declares_what_is_expected(row)];
    trials.extend(
        cases::all()
            .into_iter()
            .map(|case| trial(&row.fixture, case)),
    );
    trials
}

fn declares_what_is_expected(row: &Row) -> Trial {
    let Row {
        fixture,
        mut expected,
    } = row.clone();
    let name = format!("{}::declares_what_is_expected", fixture.name());
    Trial::test(name, move || {
        let mut declared = fixture.capabilities();
        declared.sort_unstable();
        expected.sort_unstable();
        if declared == expected {
            Ok(())
        } else {
            Err(format!("declared {declared:?}, expected {expected:?}").into())
        }
    })
}

fn trial(fixture: &Arc<dyn Fixture>, case: Case) -> Trial {
    let name = format!("{}::{}", fixture.name(), case.name);
    let declared = fixture.capabilities();
    if let Some(missing) = case.needs.iter().find(|need| !declared.contains(need)) {
        let reason = missing.reason();
        return Trial::test(name, move || {
            Err(format!("does not apply here: {reason}").into())
        })
        .with_kind(reason)
        .with_ignored_flag(true);
    }
    let fixture = Arc::clone(fixture);
    Trial::test(name, move || {
        let _timed = suite::timed(fixture.name(), case.name, ROW_BUDGET);
        run_case(&*fixture, case)
    })
}

fn run_case(fixture: &dyn Fixture, case: Case) -> Result<(), Failed> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .enable_all()
        .build()?;
    runtime
        .block_on(async {
            tokio::time::timeout(CASE_LIMIT, async {
                (case.run)(Bench::new(fixture.fresh(case.needs).await).await).await;
            })
            .await
        })
        .map_err(|_| format!("still running after {CASE_LIMIT:?}").into())
}

/// Whether a case fails on this thread: for a test that leaves out a rule of the plug-in.
///
/// # Panics
/// When there is no such case.
#[must_use]
pub fn fails(fixture: &dyn Fixture, case: &str) -> bool {
    let case = cases::all().into_iter().find(|known| known.name == case);
    let run = AssertUnwindSafe(|| run_case(fixture, case.expect("a case of the suite")));
    !matches!(catch_unwind(run), Ok(Ok(())))
}
