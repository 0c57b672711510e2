//! Errors in a configuration file: file, line, caret, fix.

use std::{fmt, ops::Range};

use crate::secret::{SecretUrl, names_a_secret};

/// The text of a configuration file and where it came from.
pub(crate) struct Source {
    pub(crate) name: String,
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
        let line = self.text[line_start..line_end].trim_end_matches('\r');
        let line = shown(line);
        let number = self.text[..start].matches('\n').count() + 1;
        let before = self.text[line_start..start].chars().count();
        let end = self.boundary(span.end).clamp(start, line_end);
        let carets = self.text[start..end].chars().count().max(1);
        let margin = " ".repeat(number.to_string().len());
        ConfigError(format!(
            "{message}\n{margin} --> {name}:{number}:{column}\n{margin} |\n{number} | {line}\n\
             {margin} | {indent}{carets}\nfix: {fix}",
            name = self.name,
            column = before + 1,
            indent = " ".repeat(before),
            carets = "^".repeat(carets),
        ))
    }

    /// The nearest place at or before `at` that does not cut a character.
    fn boundary(&self, at: usize) -> usize {
        (0..=at.min(self.text.len()))
            .rev()
            .find(|&at| self.text.is_char_boundary(at))
            .unwrap_or(0)
    }
}

/// The line may be an address with a password in it, or a key of another program's for one.
fn shown(line: &str) -> String {
    match line.split_once('=') {
        Some((name, _)) if names_a_secret(name) => format!("{name}= ***"),
        _ => SecretUrl::new(line).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_value_of_a_key_for_a_secret_is_not_shown() {
        for (line, seen) in [
            ("password = \"hunter2\"", "password = ***"),
            ("api.Token=hunter2", "api.Token= ***"),
            ("key = \"{key}\"", "key = \"{key}\""),
        ] {
            assert_eq!(shown(line), seen);
        }
    }

    #[test]
    fn the_caret_stands_under_the_fault() {
        let source = Source {
            name: "p.toml".to_owned(),
            text: "a = 1\r\nü = x # end\n".to_owned(),
        };
        let start = source.text.find('x').unwrap();
        let error = source.error(&(start..start + 1), "bad value", "write 2");
        assert_eq!(
            error.to_string(),
            "bad value\n  --> p.toml:2:5\n  |\n2 | ü = x # end\n  |     ^\nfix: write 2"
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
