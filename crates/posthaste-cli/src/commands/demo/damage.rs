//! Damages the delivered file, so that tests see the proof find it.

use std::{collections::HashMap, path::Path};

use uuid::Uuid;

use crate::failure::Failure;

/// The damage to the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Damage {
    /// A line is taken out.
    Drop,
    /// Two lines of one order change places.
    Swap,
    /// A line is added that nobody wrote.
    Invent,
    /// A line is there twice.
    Repeat,
}

impl Damage {
    pub(super) fn apply(self, file: &Path) -> Result<(), Failure> {
        let text = std::fs::read_to_string(file)?;
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let middle = lines.len() / 2;
        let Some(line) = lines.get(middle).cloned() else {
            return Err(Failure::failed("there is no line to damage"));
        };
        match self {
            Self::Drop => drop(lines.remove(middle)),
            Self::Repeat => lines.insert(middle, line),
            Self::Invent => {
                let id = field(&line, "id");
                lines.insert(middle, line.replace(&id, &Uuid::now_v7().to_string()));
            }
            Self::Swap => {
                let Some((earlier, later)) = two_of_one_order(&lines) else {
                    return Err(Failure::failed("no order has two lines to swap"));
                };
                lines.swap(earlier, later);
            }
        }
        Ok(std::fs::write(file, lines.join("\n") + "\n")?)
    }
}

/// Where two lines of one order are, whichever order has two.
fn two_of_one_order(lines: &[String]) -> Option<(usize, usize)> {
    let mut seen = HashMap::new();
    let mut places = lines.iter().enumerate();
    places.find_map(|(at, line)| Some((seen.insert(field(line, "key"), at)?, at)))
}

fn field(line: &str, name: &str) -> String {
    let value: Option<serde_json::Value> = serde_json::from_str(line).ok();
    value
        .and_then(|value| value[name].as_str().map(str::to_owned))
        .unwrap_or_default()
}
