//! The proof: the shop's tables against the delivered file, both read again.

use std::{
    collections::HashMap,
    fs::File,
    io::{BufRead, BufReader},
    path::Path,
};

use serde_json::{Value, json};
use uuid::Uuid;

use super::{shop::Change, view::Story};
use crate::{
    failure::Failure,
    output::{self, Style},
};

/// The result of the comparison; counts of events.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Proof {
    /// In the shop's tables.
    committed: u64,
    /// Of those, in the file at least once.
    delivered: u64,
    /// Lines of an event after its first.
    duplicates: u64,
    /// In the tables and not in the file.
    lost: u64,
    /// First lines of an event after one of a later change to the same order.
    out_of_order: u64,
    /// Lines of something that never committed, or not with this content.
    phantom: u64,
    /// Orders in the tables.
    orders: u64,
}

/// Compares what committed with the file.
pub(super) fn compare(truth: &[Change], file: &Path, topic: &str) -> Result<Proof, Failure> {
    let mut waiting: HashMap<Uuid, (&Change, bool)> = truth
        .iter()
        .map(|change| (change.event, (change, false)))
        .collect();
    let mut reached: HashMap<&str, u64> = HashMap::new();
    let mut proof = Proof {
        committed: truth.len() as u64,
        ..Proof::default()
    };
    for line in BufReader::new(File::open(file)?).lines() {
        let delivered = Delivered::parse(&line?, topic);
        let known = delivered
            .as_ref()
            .and_then(|delivered| waiting.get_mut(&delivered.event));
        let (Some(delivered), Some((change, seen))) = (&delivered, known) else {
            proof.phantom += 1;
            continue;
        };
        if (delivered.order.as_str(), delivered.n) != (change.order.as_str(), change.n) {
            proof.phantom += 1;
        } else if std::mem::replace(seen, true) {
            proof.duplicates += 1;
        } else {
            proof.delivered += 1;
            let reached = reached.entry(&change.order).or_insert(0);
            proof.out_of_order += u64::from(change.n < *reached);
            *reached = change.n.max(*reached);
        }
    }
    proof.lost = waiting.values().filter(|(_, seen)| !seen).count() as u64;
    let mut orders: Vec<_> = truth.iter().map(|change| change.order.as_str()).collect();
    orders.sort_unstable();
    orders.dedup();
    proof.orders = orders.len() as u64;
    Ok(proof)
}

/// A line of the file, as a consumer understands it.
struct Delivered {
    event: Uuid,
    order: String,
    n: u64,
}

impl Delivered {
    /// None for a line that is none of the shop's events.
    fn parse(line: &str, topic: &str) -> Option<Self> {
        let line: Value = serde_json::from_str(line).ok()?;
        let payload: Value = serde_json::from_str(line["payload"].as_str()?).ok()?;
        let order = payload["order"].as_str()?.to_owned();
        let right = line["topic"] == topic && line["key"] == order.as_str();
        right.then_some(())?;
        Some(Self {
            event: line["id"].as_str()?.parse().ok()?,
            n: payload["n"].as_u64()?,
            order,
        })
    }
}

impl Proof {
    /// Repeats are allowed: delivery is at least once.
    pub(super) fn holds(&self) -> bool {
        self.committed == self.delivered && self.lost + self.out_of_order + self.phantom == 0
    }

    /// The contract of `demo --json`.
    pub(super) fn as_json(&self) -> Value {
        json!({
            "committed": self.committed,
            "delivered": self.delivered,
            "duplicates": self.duplicates,
            "lost": self.lost,
            "out_of_order": self.out_of_order,
            "phantom": self.phantom,
        })
    }

    pub(super) fn report(&self, story: &Story, colours: bool) -> String {
        let paint = |text: &str, style| output::paint(text, style, colours);
        let mut text = format!(
            "\n{}\n\n",
            paint(
                "The proof, from the shop's tables and the delivered file, both read again:",
                Style::Bold
            )
        );
        let mut line = |name: &str, number: u64, must_be_zero: bool, note: String| {
            let verdict = match (must_be_zero, number) {
                (false, _) => "   ".to_owned(),
                (true, 0) => paint("ok ", Style::Good),
                (true, _) => paint("BAD", Style::Bad),
            };
            let number = output::thousands(number);
            let note = paint(&note, Style::Dim);
            text.push_str(&format!("  {name:<13}{number:>10}  {verdict}  {note}\n"));
        };
        line(
            "committed",
            self.committed,
            false,
            "events of sales that were made".to_owned(),
        );
        line(
            "delivered",
            self.delivered,
            false,
            "of them are in the file".to_owned(),
        );
        line("lost", self.lost, true, String::new());
        let off = output::thousands(story.called_off);
        line(
            "phantom",
            self.phantom,
            true,
            format!("lines without a sale; {off} events rolled back"),
        );
        let orders = output::thousands(self.orders);
        line(
            "out of order",
            self.out_of_order,
            true,
            format!("{orders} orders, each in the order of its commits"),
        );
        line(
            "duplicates",
            self.duplicates,
            false,
            "delivery is at least once".to_owned(),
        );
        let verdict = if self.holds() {
            let outage = story.outage.as_secs_f64();
            paint(
                &format!(
                    "Every committed event arrived, in order, across an outage of {outage:.1} s."
                ),
                Style::Good,
            )
        } else {
            paint(
                "The promise is broken. Please report this, with the files of a run with --keep.",
                Style::Bad,
            )
        };
        text.push_str(&format!("\n  {verdict}\n\n"));
        text.push_str(&format!(
            "{}\n  posthaste init  --store sqlite:app.db\n  posthaste relay --from sqlite:app.db \
             --to file:///tmp/events.jsonl\n",
            paint("Next, with your own database:", Style::Bold)
        ));
        text
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn change(order: &str, n: u64) -> Change {
        Change {
            event: Uuid::now_v7(),
            order: order.to_owned(),
            n,
        }
    }

    fn line(change: &Change) -> String {
        let payload = json!({ "order": change.order, "n": change.n }).to_string();
        let id = change.event.to_string();
        json!({ "id": id, "topic": "t", "key": change.order, "payload": payload }).to_string()
    }

    fn proof(truth: &[Change], lines: &[String]) -> Proof {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all((lines.join("\n") + "\n").as_bytes())
            .unwrap();
        compare(truth, file.path(), "t").unwrap()
    }

    #[test]
    fn each_fault_is_found_and_none_is_made_up() {
        let truth = [change("a", 1), change("b", 1), change("a", 2)];
        let lines: Vec<_> = truth.iter().map(line).collect();
        let good = Proof {
            committed: 3,
            delivered: 3,
            orders: 2,
            ..Proof::default()
        };
        assert_eq!(proof(&truth, &lines), good);
        assert!(good.holds());

        let lost = proof(&truth, &lines[..2]);
        assert_eq!((lost.lost, lost.delivered, lost.holds()), (1, 2, false));

        let swapped = [lines[2].clone(), lines[1].clone(), lines[0].clone()];
        let swapped = proof(&truth, &swapped);
        assert_eq!(
            (swapped.out_of_order, swapped.lost, swapped.holds()),
            (1, 0, false)
        );

        let repeated = [lines.clone(), lines.clone()].concat();
        let repeated = proof(&truth, &repeated);
        assert_eq!(
            (repeated.duplicates, repeated.out_of_order, repeated.holds()),
            (3, 0, true)
        );

        let wrong_content = line(&Change {
            n: 9,
            ..truth[0].clone()
        });
        for invented in [line(&change("a", 1)), wrong_content, "not JSON".to_owned()] {
            let mut lines = lines.clone();
            lines.push(invented);
            let invented = proof(&truth, &lines);
            assert_eq!((invented.phantom, invented.holds()), (1, false));
        }
    }
}
