//! Compares a delivered file with what the business tables say, life by life of the relay.

use std::{collections::HashSet, path::Path};

use posthaste_testkit::{checker::Report, lines};
use posthaste_torture::{
    database::{Database, Fact},
    judge::{Delivery, Judge, assert_sound},
    relay::Delivered,
};

/// How the relay before a life ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum After {
    /// There was none.
    Nothing,
    Kill,
    Stop,
}

/// The lives of a relay, each with the number of lines that stood in the file before it.
#[derive(Debug)]
pub(crate) struct Lives(Vec<(After, u64)>);

/// The checker's report, and the repeats of each life.
#[derive(Debug)]
pub(crate) struct Verdict {
    pub(crate) report: Report,
    pub(crate) repeats: Vec<(After, u64)>,
}

impl Lives {
    pub(crate) fn first() -> Self {
        Self(vec![(After::Nothing, 0)])
    }

    /// Notes that a relay has ended; nobody writes the file now.
    pub(crate) fn next(&mut self, after: After, delivered: &Delivered) {
        self.0.push((after, delivered.lines()));
    }

    /// Reads truth and file.
    pub(crate) async fn judge(&self, database: &dyn Database, delivered: &Delivered) -> Verdict {
        let facts = database.facts().await;
        assert_sound(&facts);
        self.compare(&facts, delivered.path())
    }

    pub(crate) fn compare(&self, facts: &[Fact], file: &Path) -> Verdict {
        let mut judge = Judge::of(facts);
        let mut lives = self.0.iter().copied().peekable();
        let mut repeats = Vec::new();
        let mut seen = HashSet::new();
        for (number, line) in (0..).zip(lines::read(file).unwrap()) {
            while let Some((after, _)) = lives.next_if(|(_, begin)| *begin <= number) {
                judge.restarted();
                repeats.push((after, 0));
            }
            let delivery = Delivery::of_line(&line.unwrap());
            judge.delivered(&delivery);
            let repeated = !seen.insert(delivery.id);
            repeats.last_mut().unwrap().1 += u64::from(repeated);
        }
        repeats.extend(lives.map(|(after, _)| (after, 0)));
        Verdict {
            report: judge.finish(),
            repeats,
        }
    }
}

impl Verdict {
    /// Nothing lost, invented or out of order; a kill repeats no more than the window, a stop
    /// nothing.
    pub(crate) fn assert_good(&self, window: u64) {
        self.report.assert_good();
        for (life, (after, repeats)) in self.repeats.iter().enumerate() {
            let bound = if *after == After::Kill { window } else { 0 };
            assert!(
                *repeats <= bound,
                "life {life} after {after:?} repeated {repeats}:\n{self:?}"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::PathBuf};

    use uuid::Uuid;

    use super::{After, Fact, Lives};
    use posthaste_torture::{
        database::{Database, Plan},
        relay::{Delivered, RelayCommand},
        sqlite::Sqlite,
    };

    /// The verdict on a delivered file must see each kind of damage, or it proves nothing.
    #[tokio::test]
    async fn a_damaged_file_is_not_judged_good() {
        let database = Sqlite::new().await;
        let mut writer = database.writer().await.unwrap();
        for _ in 0..5 {
            for key in ["a", "b"] {
                writer.transact(&Plan::of(key, 2)).await.unwrap();
            }
        }
        let delivered = Delivered::new();
        RelayCommand::new(&database.url(), &delivered).drain(0);
        let facts = database.facts().await;
        let content = fs::read_to_string(delivered.path()).unwrap();
        let lines: Vec<_> = content.lines().collect();
        let file = delivered.directory().join("damaged.jsonl");
        let judge = |lines: &[&str]| {
            fs::write(
                &file,
                lines
                    .iter()
                    .map(|line| format!("{line}\n"))
                    .collect::<String>(),
            )
            .unwrap();
            Lives::first().compare(&facts, &file)
        };

        judge(&lines).assert_good(0);
        let dropped = judge(&lines[1..]).report;
        assert_eq!((dropped.lost, dropped.is_good()), (1, false));
        let mut swapped = lines.clone();
        swapped.swap(0, 1);
        assert_eq!(judge(&swapped).report.out_of_order, 1);
        let id = facts
            .iter()
            .find(|fact| lines[3].contains(&fact.id.to_string()))
            .unwrap()
            .id;
        let invented = lines[3].replace(&id.to_string(), &Uuid::new_v4().to_string());
        let mut phantom = lines.clone();
        phantom.push(&invented);
        assert_eq!(judge(&phantom).report.phantom, 1);
        let mut repeated = lines.clone();
        repeated.push(lines[lines.len() - 1]);
        let verdict = judge(&repeated);
        assert_eq!(
            (verdict.report.is_good(), verdict.repeats),
            (true, vec![(After::Nothing, 1)])
        );
        assert!(torn(&file, &content, &facts).is_err());
    }

    fn torn(file: &PathBuf, content: &str, facts: &[Fact]) -> std::thread::Result<()> {
        fs::write(file, &content[..content.len() - 10]).unwrap();
        std::panic::catch_unwind(|| drop(Lives::first().compare(facts, file)))
    }
}
