//! Errors in a configuration file: file, line, caret, fix.

use std::{fmt, ops::Range, path::PathBuf};

use posthaste_engine::is_plain_name;

/// The text of a configuration file and where it came from.
pub(crate) struct Source {
    pub(crate) name: String,
    /// Where relative paths of secrets begin.
    pub(crate) folder: PathBuf,
    pub(crate) text: String,
}

impl fmt::Debug for Source {
    // The text may hold secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// Why a configuration cannot be used: a report for people, several lines long.
#[derive(Debug)]
pub(crate) struct ConfigError(String);

impl ConfigError {
    /// An error that no line of a file is to blame for.
    pub(crate) fn plain(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Source {
    /// An error about this part of the file.
    pub(crate) fn error(
        &self,
        span: &Range<usize>,
        message: impl fmt::Display,
        fix: impl fmt::Display,
    ) -> ConfigError {
        let start = self.boundary(span.start);
        let line_start = self.text[..start].rfind('\n').map_or(0, |at| at + 1);
        let line_end = self.text[start..]
            .find('\n')
            .map_or(self.text.len(), |at| start + at);
        let number = self.text[..start].matches('\n').count() + 1;
        let before = self.text[line_start..start].chars().count();
        let end = self.boundary(span.end).clamp(start, line_end);
        let marked = self.text[start..end].chars().count().max(1);
        let margin = " ".repeat(number.to_string().len());
        let (line, kept) = match self.begins_in_a_text(line_start) {
            true => (HIDDEN.to_owned(), 0),
            false => excerpt(&self.text[line_start..line_end]),
        };
        let (indent, carets) = match kept.checked_sub(before) {
            Some(kept) if kept > 0 => (before, marked.min(kept)),
            _ => (line.chars().count() - 1, 1),
        };
        ConfigError(format!(
            "{message}\n{margin} --> {name}:{number}:{column}\n{margin} |\n{number} | {line}\n\
             {margin} | {indent}{carets}\nfix: {fix}",
            name = self.name,
            column = before + 1,
            indent = " ".repeat(indent),
            carets = "^".repeat(carets),
        ))
    }

    /// Whether a text of several lines, between three quotes, is open at the beginning of a line.
    /// One that a comment opens counts too: it hides a line more than it must.
    fn begins_in_a_text(&self, line_start: usize) -> bool {
        let before = &self.text[..line_start];
        ["\"\"\"", "'''"]
            .map(|quotes| before.matches(quotes).count() % 2)
            .contains(&1)
    }

    /// The nearest place at or before `at` that does not cut a character.
    fn boundary(&self, at: usize) -> usize {
        (0..=at.min(self.text.len()))
            .rev()
            .find(|&at| self.text.is_char_boundary(at))
            .unwrap_or(0)
    }
}

/// Stands for all that is not shown.
const HIDDEN: &str = "…";

/// A line as an error shows it, and how many of its characters are shown: a plain key, or the
/// heading of a table with a plain name. No value is shown, whatever its key: any text may be a
/// password, or by mistake an address.
fn excerpt(line: &str) -> (String, usize) {
    let line = line.trim_end();
    let heading = line.trim_matches(['[', ']']);
    if line.starts_with('[') && line.ends_with(']') && is_plain_name(heading) {
        return (line.to_owned(), line.chars().count());
    }
    match line.split_once('=') {
        Some((key, _)) if is_plain_name(key.trim()) => {
            let key = key.trim_end();
            (format!("{key} = {HIDDEN}"), key.chars().count())
        }
        _ => (HIDDEN.to_owned(), 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_value_of_a_key_for_a_secret_is_not_shown() {
        for (line, seen) in [
            ("password = \"hunter2\"", "password = …"),
            ("api.Token=hunter2", "api.Token = …"),
            ("key = \"{key}\"", "key = …"),
            ("  pwd = \"hunter2\"\r", "  pwd = …"),
            ("options = { password = \"hunter2\" }", "options = …"),
            ("url=\"null:\" password=\"hunter2\"", "url = …"),
            ("to = [\"amqp://u:hunter2@h/\"]", "to = …"),
            ("  \"amqp://u:hunter2@h/?a=1\",", "…"),
            ("\"amqp://u:hunter2@h/\" = 1", "…"),
            ("[destinations.\"amqp://u:hunter2@h/\"]", "…"),
            ("[[routes]]", "[[routes]]"),
            ("[destinations.a]", "[destinations.a]"),
            ("[destinations.a] # hunter2", "…"),
            ("hunter2", "…"),
        ] {
            assert_eq!(excerpt(line).0, seen);
        }
    }

    #[test]
    fn a_line_inside_a_text_is_not_shown() {
        for quotes in ["\"\"\"", "'''"] {
            let text = format!("a = {quotes}amqp://u:\nhunter2==\n{quotes}\nb = 1\n");
            let source = Source {
                name: "p.toml".to_owned(),
                folder: PathBuf::new(),
                text,
            };
            let error = |word: &str| {
                let start = source.text.find(word).unwrap();
                source.error(&(start..start + 1), "m", "f").to_string()
            };
            assert!(error("hunter2").contains("2 | …\n"));
            assert!(error("b = 1").contains("4 | b = …\n"));
        }
    }

    #[test]
    fn the_caret_stands_under_the_fault() {
        let source = Source {
            name: "p.toml".to_owned(),
            folder: PathBuf::new(),
            text: "a = 1\r\n bc= \"ü\" # end\n".to_owned(),
        };
        let start = source.text.find("\"ü").unwrap();
        let error = source.error(&(start..start + 3), "bad value", "write 2");
        assert_eq!(
            error.to_string(),
            "bad value\n  --> p.toml:2:6\n  |\n2 |  bc = …\n  |       ^\nfix: write 2"
        );
        let start = source.text.find("bc").unwrap();
        let error = source.error(&(start..start + 2), "bad key", "write b");
        assert_eq!(
            error.to_string(),
            "bad key\n  --> p.toml:2:2\n  |\n2 |  bc = …\n  |  ^^\nfix: write b"
        );
        let end = source.text.len();
        assert!(
            source
                .error(&(end..end + 9), "m", "f")
                .to_string()
                .contains("p.toml:3:1")
        );
    }
}
