//! The row in which a store or a sink describes itself. Messages, option parsing, help, the suites'
//! rows and the tables of the documents are derived from it.
//!
//! A row is compiled into every build, also into one without its plug-in, so that messages know
//! what the build left out.

use std::time::Duration;

use crate::sink::{Deduplication, FenceKind, KeyOrder};

/// The part of a row that stores and sinks have in common.
#[derive(Debug)]
pub struct PlugIn {
    /// Its name: the kind that it reports, the name of its files, its page and its suite rows.
    pub name: &'static str,
    /// Its name for people, such as `RabbitMQ`.
    pub title: &'static str,
    /// The schemes of its addresses; none belongs to another plug-in of its kind.
    pub schemes: &'static [&'static str],
    /// An address to begin with; words in capitals are to be replaced.
    pub example: &'static str,
    /// The part of an address behind its scheme.
    pub address: AddressForm,
    /// The options behind the `?` of an address, by name.
    pub options: &'static [OptionSpec],
    /// The feature of the build that brings it; none: every build has it.
    pub feature: Option<Feature>,
    /// The file of the test kit's `servers` that starts a real server for it; none: it needs none.
    pub server: Option<&'static str>,
}

/// A feature of the build.
#[derive(Debug, Clone, Copy)]
pub struct Feature {
    /// Its name, for `cargo build --features`.
    pub name: &'static str,
    /// Needs of a machine beside a Rust toolchain and a C compiler.
    pub needs: Option<&'static str>,
}

/// The part of an address behind its scheme.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressForm {
    /// A login, servers, and a path: it may hold a password.
    Servers,
    /// The same, where a user without a password is a token, and as secret as one.
    ServersOrToken,
    /// The path of a file, in which `@` and `:` are letters like others.
    File,
    /// Nothing.
    Bare,
}

/// One option of an address.
#[derive(Debug, Clone, Copy)]
pub struct OptionSpec {
    /// Its name.
    pub name: &'static str,
    /// The values that it takes.
    pub value: OptionValue,
    /// Its value where it is not given.
    pub default: OptionDefault,
    /// Its meaning, in Markdown, for its row in the page.
    pub help: &'static str,
}

/// The values that an option takes.
#[derive(Debug, Clone, Copy)]
pub enum OptionValue {
    /// Any text.
    Text,
    /// The path of a file.
    File,
    /// One of these words.
    Word(&'static [&'static str]),
    /// A whole number of this unit, not below the least.
    Number {
        /// The unit of counting, such as `bytes`.
        unit: &'static str,
        /// The least number.
        least: u64,
    },
    /// A time with its unit, `ms` or `s`.
    Duration {
        /// The shortest, in milliseconds.
        shortest_ms: u64,
        /// The longest, in milliseconds.
        longest_ms: u64,
        /// Both in words, such as `from 0ms to 1s`.
        range: &'static str,
        /// A value to copy.
        example: &'static str,
    },
    /// The rights of a file in octal, among them reading and writing for its owner.
    FileMode,
}

/// The value of an option that is not given.
#[derive(Debug, Clone, Copy)]
pub enum OptionDefault {
    /// An address without it is refused.
    Required,
    /// This value.
    Value(&'static str),
    /// No value; the words say what that means.
    Unset(&'static str),
}

/// The promises of a sink in one of its modes. The suite demands it, and the documents say it.
#[derive(Debug, Clone, Copy)]
pub struct SinkMode {
    /// The name of its suite row: the sink's, and the mode's behind it where there are several.
    pub name: &'static str,
    /// The order that the receiver keeps.
    pub key_order: KeyOrder,
    /// The fence of an aborted lane.
    pub fence: FenceKind,
    /// Whether a destination may have only one lane at a time.
    pub single_lane: bool,
    /// Requests of a lane under way at once ([`SinkInfo::requests_max`](crate::SinkInfo)).
    pub requests_max: Option<u32>,
    /// The memory by which the receiver suppresses a repeated event id; none: it has none.
    pub deduplication: Option<Deduplication>,
}

/// The reason why a scheme leads nowhere, and the fix.
#[derive(Debug, PartialEq, Eq)]
pub struct NoSuchScheme {
    /// The mistake.
    pub reason: String,
    /// The fix, if that can be guessed.
    pub fix: Option<String>,
}

impl PlugIn {
    /// Says that no plug-in of a kind (`sink`, `store`) serves a scheme. `known` are all plug-ins
    /// of the kind, and whether this build has them; `present` lists those that it has.
    #[must_use]
    pub fn no_such_scheme(
        kind: &str,
        scheme: &str,
        known: &[(&PlugIn, bool)],
        present: &str,
    ) -> NoSuchScheme {
        let serves = |(plug_in, _): &&(&PlugIn, bool)| plug_in.schemes.contains(&scheme);
        let fix = match known.iter().find(serves) {
            Some((plug_in, _)) => plug_in.build_advice(),
            None => match known.iter().find(|(plug_in, _)| plug_in.name == scheme) {
                Some((PlugIn { title, schemes, .. }, _)) => Some(format!(
                    "{title}'s scheme is `{}:`",
                    schemes.join(":` or `")
                )),
                None => nearest(
                    scheme,
                    known
                        .iter()
                        .flat_map(|(plug_in, _)| plug_in.schemes.iter().copied()),
                )
                .map(|near| format!("did you mean `{near}:`?")),
            },
        };
        NoSuchScheme {
            reason: format!("this build has no {kind} `{scheme}`, it has {present}"),
            fix,
        }
    }

    /// The command that builds it, if a feature of the build brings it.
    #[must_use]
    pub fn build_advice(&self) -> Option<String> {
        let name = self.feature?.name;
        Some(format!("build it with `cargo build --features {name}`"))
    }

    /// The option of this name.
    #[must_use]
    pub fn option(&self, name: &str) -> Option<&'static OptionSpec> {
        self.options.iter().find(|option| option.name == name)
    }

    /// The option that was probably meant.
    #[must_use]
    pub fn nearest_option(&self, name: &str) -> Option<&'static str> {
        nearest(name, self.options.iter().map(|option| option.name))
    }

    /// The names of all options, for a message.
    #[must_use]
    pub fn option_names(&self) -> String {
        let names: Vec<_> = self.options.iter().map(|option| option.name).collect();
        names.join(", ")
    }
}

impl OptionSpec {
    /// Refuses a value that the option does not take. The reason names the option, and repeats no
    /// value: a mistake in an address may have put a password there.
    ///
    /// # Errors
    /// The reason, with what would be right.
    pub fn check(&self, value: &str) -> Result<(), String> {
        let name = self.name;
        match self.value {
            OptionValue::Text | OptionValue::File => Ok(()),
            OptionValue::Word(words) if words.contains(&value) => Ok(()),
            OptionValue::Word(words) => Err(format!("`{name}` is one of {}", words.join(", "))),
            OptionValue::Number { unit, least } => match value.parse::<u64>() {
                Ok(number) if number >= least => Ok(()),
                _ => Err(format!(
                    "`{name}` is a whole number of {unit}, at least {least}"
                )),
            },
            OptionValue::Duration {
                shortest_ms,
                longest_ms,
                range,
                example,
            } => {
                let (shortest, longest) = (
                    Duration::from_millis(shortest_ms),
                    Duration::from_millis(longest_ms),
                );
                parse_duration(value)
                    .filter(|time| (shortest..=longest).contains(time))
                    .map(drop)
                    .ok_or_else(|| {
                        format!("`{name}` is a time with its unit, {range}, such as `{example}`")
                    })
            }
            OptionValue::FileMode => parse_file_mode(value).map(drop).ok_or_else(|| {
                format!(
                    "`{name}` is the mode of a file that its owner reads and writes, in octal, \
                     such as {name}=0640"
                )
            }),
        }
    }

    /// The value where none is given, if there is one.
    #[must_use]
    pub fn default_value(&self) -> Option<&'static str> {
        match self.default {
            OptionDefault::Value(value) => Some(value),
            OptionDefault::Required | OptionDefault::Unset(_) => None,
        }
    }

    /// The row of the option in its page: name, values, default and meaning.
    #[must_use]
    pub fn row(&self) -> String {
        let values = match self.value {
            OptionValue::Text => "text".to_owned(),
            OptionValue::File => "path of a file".to_owned(),
            OptionValue::Word(words) => format!("`{}`", words.join("`, `")),
            OptionValue::Number { unit, least } => format!("{unit}, at least {least}"),
            OptionValue::Duration { range, .. } => format!("time, {range}"),
            OptionValue::FileMode => "octal".to_owned(),
        };
        let default = match self.default {
            OptionDefault::Required => "required".to_owned(),
            OptionDefault::Value(value) => format!("`{value}`"),
            OptionDefault::Unset(words) => words.to_owned(),
        };
        format!("| `{}` | {values} | {default} | {} |", self.name, self.help)
    }
}

/// A time with its unit, as addresses have it: `5s`, `250ms`.
#[must_use]
pub fn parse_duration(text: &str) -> Option<Duration> {
    if let Some(number) = text.strip_suffix("ms") {
        number.parse().ok().map(Duration::from_millis)
    } else {
        let number = text.strip_suffix('s')?;
        number.parse().ok().map(Duration::from_secs)
    }
}

/// The rights of a file in three or four octal digits. A file is opened again after a rotation or a
/// restart, so its owner must be able to read and write it.
#[must_use]
pub fn parse_file_mode(text: &str) -> Option<u32> {
    const OWNER_READS_AND_WRITES: u32 = 0o600;
    const MODE_MAX: u32 = 0o777;
    if !matches!(text.len(), 3 | 4) || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    u32::from_str_radix(text, 8)
        .ok()
        .filter(|mode| *mode <= MODE_MAX && mode & OWNER_READS_AND_WRITES == OWNER_READS_AND_WRITES)
}

/// Whether a text may name a thing of ours: 1 to 63 letters, digits, `-`, `_` and `.` of ASCII.
#[must_use]
pub fn is_plain_name(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    (1..=63).contains(&text.len()) && text.chars().all(plain)
}

/// A text of the user's, as an error may repeat it: `…` unless it is a plain name. An address may
/// stand by mistake wherever a text can, with a password in it, and no address is a plain name.
#[must_use]
pub fn shown(text: &str) -> &str {
    match is_plain_name(text) {
        true => text,
        false => "…",
    }
}

/// The known name that was probably meant.
pub fn nearest<'n>(wrong: &str, names: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    names
        .into_iter()
        .map(|name| (strsim::damerau_levenshtein(wrong, name), name))
        .filter(|&(distance, name)| {
            // Any short name is two letters from any other.
            let near = distance <= 2 && distance * 2 < wrong.chars().count();
            near || strsim::jaro_winkler(wrong, name) >= 0.85
        })
        .min()
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests;
