//! Writers: applications that lock the keys they write, but for one.

use std::collections::BTreeSet;

use uuid::Uuid;

use super::{
    operation::{Operation, Shape},
    state::{Both, Driver, Emitted, LOOSE, Label, OpenTransaction},
};
use crate::store_suite::NewEvent;

const TOPICS: [&str; 2] = ["orders", "invoices"];
const LOCKED: [&str; 5] = ["key-0", "key-1", "key-2", "key-3", "key-4"];

impl Driver {
    pub(super) async fn write(&mut self, operation: &Operation) -> bool {
        match *operation {
            Operation::Write { writer, event } => {
                let open = match self.writers[usize::from(writer)].take() {
                    Some(open) => open,
                    None => self.begin().await,
                };
                let open = self.emit(open, event).await;
                self.writers[usize::from(writer)] = Some(open);
                true
            }
            Operation::Transaction {
                event,
                count,
                taken_back_from,
                commit,
            } => {
                self.transaction(event, count, taken_back_from, commit)
                    .await;
                true
            }
            Operation::Savepoint { writer } => match &mut self.writers[usize::from(writer)] {
                Some(open) => {
                    open.savepoint().await;
                    true
                }
                None => false,
            },
            Operation::RollbackTo { writer } => match &mut self.writers[usize::from(writer)] {
                Some(open) => open.roll_back_to().await,
                None => false,
            },
            Operation::Commit { writer } | Operation::Rollback { writer } => {
                let commit = matches!(operation, Operation::Commit { .. });
                match self.writers[usize::from(writer)].take() {
                    Some(open) => {
                        self.end_transaction(open, commit).await;
                        true
                    }
                    None => false,
                }
            }
            _ => unreachable!("not a writer's operation"),
        }
    }

    async fn transaction(
        &mut self,
        event: Shape,
        count: u8,
        taken_back_from: Option<u8>,
        commit: bool,
    ) {
        let mut open = self.begin().await;
        for number in 0..count {
            if taken_back_from == Some(number) {
                open.savepoint().await;
            }
            let key = event.key.wrapping_add(number / 2) % 8;
            open = self.emit(open, Shape { key, ..event }).await;
        }
        open.roll_back_to().await;
        self.end_transaction(open, commit).await;
    }

    async fn begin(&self) -> OpenTransaction {
        let mut writers = Both {
            subject: self.worlds.subject.outbox.writer().await,
            reference: self.worlds.reference.outbox.writer().await,
        };
        writers.subject.begin().await;
        writers.reference.begin().await;
        OpenTransaction {
            writers,
            events: Vec::new(),
            savepoint: None,
            keys: BTreeSet::new(),
        }
    }

    async fn emit(&mut self, mut open: OpenTransaction, shape: Shape) -> OpenTransaction {
        let key = match LOCKED.get(usize::from(shape.key)) {
            // Somebody else would have to wait for the lock.
            Some(key) if self.is_locked(key) => Some(LOOSE),
            Some(key) => {
                open.keys.insert(key);
                Some(*key)
            }
            None if shape.key == 5 => Some(LOOSE),
            None => None,
        };
        let label = self.events.len();
        let event = event(label, key, shape);
        let id = open.writers.subject.emit(&event).await;
        let same = open.writers.reference.emit(&event).await;
        assert_eq!(id, same, "the event names its id");
        self.labels.insert(id, label);
        self.events.push(Emitted { event, id });
        open.events.push(label);
        open
    }

    fn is_locked(&self, key: &str) -> bool {
        let mut open = self.writers.iter().flatten();
        open.any(|open| open.keys.contains(key))
    }

    pub(super) async fn end_transaction(&mut self, mut open: OpenTransaction, commit: bool) {
        if !commit {
            open.writers.subject.rollback().await;
            open.writers.reference.rollback().await;
            return;
        }
        open.writers.subject.commit().await;
        open.writers.reference.commit().await;
        for label in open.events {
            self.committed.insert(label);
            if let Some(key) = self.locked_key(label).map(str::to_owned) {
                self.order.entry(key).or_default().push(label);
            }
        }
    }
}

/// The same in both stores, so that an event without a key lies in the same partition: bits that
/// are spread well, and never the same twice.
fn id(label: Label) -> Uuid {
    let number = u128::try_from(label).expect("a label") + 1;
    Uuid::from_u128(number.wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835))
}

fn event(label: Label, key: Option<&str>, shape: Shape) -> NewEvent {
    let text = |on: bool, text: &str| on.then(|| text.to_owned());
    let odd = label % 2 == 1;
    let headers = [
        ("a".to_owned(), Some("1".to_owned())),
        ("a".to_owned(), None),
    ];
    NewEvent {
        id: Some(id(label)),
        topic: TOPICS[label % TOPICS.len()].to_owned(),
        key: key.map(str::to_owned),
        payload: shape.size.map(|size| {
            let mut payload = vec![b'x'; usize::from(size) * 100];
            payload.extend(label.to_string().bytes());
            payload
        }),
        event_type: text(odd, "OrderPlaced"),
        content_type: text(!odd, "application/json"),
        correlation_id: Some(label.to_string()),
        tenant_id: text(label.is_multiple_of(3), "tenant"),
        headers: headers[..usize::from(shape.headers).min(2)].to_vec(),
        ..NewEvent::unkeyed("")
    }
}
