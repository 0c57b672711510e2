//! Explores every scenario and every control, and prints what was found.
//!
//! `cargo run -p posthaste-model [PART OF A NAME]`, with `POSTHASTE_TEST_LONG=1` for the large
//! scenarios as well. Ends with status 1 when a promise is broken, or a left-out rule breaks none.

use std::process::ExitCode;

use posthaste_model::{
    checker::Found,
    configurations::{Control, controls, scenarios},
};

fn main() -> ExitCode {
    let part = std::env::args().nth(1).unwrap_or_default();
    let mut as_promised = true;
    for scenario in scenarios() {
        if !scenario.name.contains(&part) {
            continue;
        }
        let found = scenario.explored.explore();
        println!("{}: {}", scenario.name, verdict(&found));
        as_promised &= found.broken.is_none() && found.drained;
    }
    for Control { name, explored } in controls() {
        if !name.contains(&part) {
            continue;
        }
        let found = explored.explore();
        println!("without a rule: {name}: {}", verdict(&found));
        as_promised &= found.broken.is_some();
    }
    match as_promised {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

fn verdict(found: &Found) -> String {
    let Found {
        states,
        depth,
        took,
        broken,
        ..
    } = found;
    let verdict = match broken {
        None => "every promise holds".to_owned(),
        Some((promise, way)) => format!(
            "broken: {promise} ({} steps)\n    {}",
            way.len(),
            way.join("\n    ")
        ),
    };
    format!(
        "{states} states, depth {depth}, {:.1} s: {verdict}",
        took.as_secs_f64()
    )
}
