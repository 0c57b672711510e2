//! The output of commands: tables for people, JSON for programs.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use posthaste_engine::HeldPlace;
use serde_json::{Value, json};

/// Colours, used on a terminal only and never when `NO_COLOR` is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    Plain,
    Bold,
    Dim,
    Good,
    Warn,
    Bad,
}

/// Whether standard output is a terminal that wants colours.
pub(crate) fn colours() -> bool {
    io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
}

/// Dresses a text.
pub(crate) fn paint(text: &str, style: Style, colours: bool) -> String {
    let code = match style {
        Style::Plain => "",
        Style::Bold => "1",
        Style::Dim => "2",
        Style::Good => "32",
        Style::Warn => "33",
        Style::Bad => "31",
    };
    if colours && !code.is_empty() {
        format!("\x1b[{code}m{text}\x1b[0m")
    } else {
        text.to_owned()
    }
}

/// A place that is held back, for programs.
pub(crate) fn place_json(place: &HeldPlace) -> Value {
    json!({
        "name": place.name,
        "reason": place.reason,
        "seconds_held": milliseconds_kept(place.held_for),
        "returns": place.returns,
        "paused": place.is_paused,
        "in_memory": place.in_memory,
        "set_aside": place.set_aside,
    })
}

/// Seconds; what is finer than milliseconds tells nobody anything.
pub(crate) fn milliseconds_kept(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1_000.0).round() / 1_000.0
}

/// A table with a heading; columns are as wide as their widest cell.
#[derive(Debug)]
pub(crate) struct Table {
    heading: Vec<&'static str>,
    rows: Vec<Vec<(String, Style)>>,
}

impl Table {
    pub(crate) fn new(heading: &[&'static str]) -> Self {
        Self {
            heading: heading.to_vec(),
            rows: Vec::new(),
        }
    }

    pub(crate) fn row(&mut self, cells: Vec<(String, Style)>) {
        self.rows.push(cells);
    }

    pub(crate) fn render(&self, colours: bool) -> String {
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            let widest = cells
                .map(|(text, _)| text.chars().count())
                .max()
                .unwrap_or(0);
            widest.max(self.heading[column].len())
        };
        let widths: Vec<_> = (0..self.heading.len()).map(width).collect();
        let mut text = String::new();
        let heading = self
            .heading
            .iter()
            .map(|name| (name.to_uppercase(), Style::Dim))
            .collect();
        for row in std::iter::once(&heading).chain(&self.rows) {
            for (column, (cell, style)) in row.iter().enumerate() {
                text.push_str(&paint(cell, *style, colours));
                let padding = widths[column].saturating_sub(cell.chars().count());
                if column + 1 < row.len() {
                    text.push_str(&" ".repeat(padding + 2));
                }
            }
            text.push('\n');
        }
        text
    }
}

/// Prints to standard output. A reader that has gone away is not an error worth a report.
pub(crate) fn print(text: &str) -> io::Result<()> {
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

/// Prints a JSON value on one line.
pub(crate) fn print_json(value: &serde_json::Value) -> io::Result<()> {
    print(&format!("{value}\n"))
}

/// A moment as RFC 3339 with microseconds: `micros` since 1970-01-01 UTC.
pub(crate) fn time(micros: i64) -> String {
    jiff::Timestamp::from_microsecond(micros)
        .map_or_else(|_| format!("{micros}us"), |time| format!("{time:.6}"))
}

/// A moment for people who read a table.
pub(crate) fn time_to_the_second(micros: i64) -> String {
    jiff::Timestamp::from_microsecond(micros)
        .map_or_else(|_| format!("{micros}us"), |time| format!("{time:.0}"))
}

/// A duration short enough to be read at a glance: its two largest units.
pub(crate) fn short_duration(duration: Duration) -> String {
    let text = if duration < Duration::from_secs(1) {
        humantime::format_duration(Duration::from_millis(
            u64::try_from(duration.as_millis()).unwrap_or(u64::MAX),
        ))
    } else {
        humantime::format_duration(Duration::from_secs(duration.as_secs()))
    };
    // Hours and minutes are letters, days are not.
    let text = text.to_string().replace("days", "d").replace("day", "d");
    text.split(' ').take(2).collect::<Vec<_>>().join(" ")
}

/// Words from outside: characters that do something to a terminal are shown as escapes.
pub(crate) fn visible(text: &str) -> String {
    let shown = |c: char| match c.is_control() {
        true => c.escape_debug().to_string(),
        false => c.to_string(),
    };
    text.chars().map(shown).collect()
}

/// At most so many characters; the last one says that there were more.
pub(crate) fn cut(text: &str, characters: usize) -> String {
    match text.char_indices().nth(characters) {
        None => text.to_owned(),
        Some(_) => text.chars().take(characters - 1).chain(['…']).collect(),
    }
}

/// Lines of at most so many characters, broken at spaces; a longer word is broken where it must be.
pub(crate) fn wrapped(text: &str, characters: usize) -> Vec<String> {
    let (mut lines, mut line) = (Vec::new(), String::new());
    for word in text.split(' ') {
        let length = |text: &str| text.chars().count();
        if !line.is_empty() {
            match length(&line) + 1 + length(word) > characters {
                true => lines.push(std::mem::take(&mut line)),
                false => line.push(' '),
            }
        }
        for character in word.chars() {
            if length(&line) == characters {
                lines.push(std::mem::take(&mut line));
            }
            line.push(character);
        }
    }
    lines.push(line);
    lines
}

/// A number with its thousands apart.
pub(crate) fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Events in a second, of small numbers with one more digit.
pub(crate) fn rate(events: f64) -> String {
    let digits = usize::from(events > 0.0 && events < 10.0);
    format!("{events:.digits$} events")
}

/// Bytes in the largest unit that leaves a number of at least one.
pub(crate) fn bytes(bytes: u64) -> String {
    let units = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10_u64)];
    match units.into_iter().find(|&(_, size)| bytes >= size) {
        Some((unit, size)) => format!("{}.{} {unit}", bytes / size, bytes % size * 10 / size),
        None => format!("{bytes} B"),
    }
}

/// `1 event`, `2 events`.
pub(crate) fn count(number: u64, thing: &str) -> String {
    format!(
        "{} {thing}{}",
        thousands(number),
        if number == 1 { "" } else { "s" }
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_readable() {
        assert_eq!(
            ["0", "999", "1,000", "1,234,567"],
            [0, 999, 1_000, 1_234_567].map(thousands)[..]
        );
        assert_eq!(bytes(1_023), "1023 B");
        assert_eq!(bytes(1_572_864), "1.5 MiB");
        assert_eq!(count(1, "event"), "1 event");
        assert_eq!([cut("äöü", 3), cut("äöüß", 3)], ["äöü", "äö…"]);
        assert_eq!(wrapped("ab cd efghij k", 5), ["ab cd", "efghi", "j k"]);
        assert_eq!(short_duration(Duration::from_millis(1)), "1ms");
        assert_eq!(short_duration(Duration::from_secs(93_784)), "1d 2h");
        assert_eq!(time(1_700_000_000_000_001), "2023-11-14T22:13:20.000001Z");
        assert_eq!(
            time_to_the_second(1_700_000_000_999_999),
            "2023-11-14T22:13:20Z"
        );
    }

    #[test]
    fn columns_line_up_and_colours_do_not_count() {
        let mut table = Table::new(&["name", "pending"]);
        table.row(vec![
            ("ü".to_owned(), Style::Good),
            ("1".to_owned(), Style::Plain),
        ]);
        table.row(vec![
            ("orders".to_owned(), Style::Plain),
            ("2".to_owned(), Style::Plain),
        ]);
        assert_eq!(
            table.render(false),
            "NAME    PENDING\nü       1\norders  2\n"
        );
        assert!(table.render(true).contains("\x1b[32mü\x1b[0m       1"));
    }
}
