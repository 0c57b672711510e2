//! Reads one table of a configuration file, key by key, so that every error has its place.

use std::{ops::RangeInclusive, time::Duration};

use posthaste_engine::{nearest, shown};
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::{
    report::{ConfigError, Source},
    secrets, units,
};
use crate::secret::SecretUrl;

/// A table with the keys that may stand in it.
pub(crate) struct Section<'a, 'i> {
    pub(crate) source: &'a Source,
    /// As it stands in the file: `[relay]`.
    pub(crate) heading: String,
    pub(crate) span: std::ops::Range<usize>,
    table: &'a DeTable<'i>,
}

type Read<T> = Result<T, ConfigError>;
type Value<'i> = Spanned<DeValue<'i>>;

impl<'a, 'i> Section<'a, 'i> {
    /// Opens a table, refusing any key that is not known.
    pub(crate) fn open(
        source: &'a Source,
        heading: String,
        value: &'a Value<'i>,
        known: &[&str],
    ) -> Read<Self> {
        let DeValue::Table(table) = value.get_ref() else {
            let message = format!(
                "{heading} must be a table, found {}",
                value.get_ref().type_str()
            );
            return Err(source.error(&value.span(), message, format!("write it as {heading}")));
        };
        let section = Self {
            source,
            heading,
            span: value.span(),
            table,
        };
        section.refuse_unknown(known)?;
        Ok(section)
    }

    /// The file itself.
    pub(crate) fn root(
        source: &'a Source,
        table: &'a Spanned<DeTable<'i>>,
        known: &[&str],
    ) -> Read<Self> {
        let section = Self {
            source,
            heading: "the file".to_owned(),
            span: table.span(),
            table: table.get_ref(),
        };
        section.refuse_unknown(known)?;
        Ok(section)
    }

    fn refuse_unknown(&self, known: &[&str]) -> Read<()> {
        for key in self.table.keys() {
            let name = key.get_ref().as_ref();
            if !known.contains(&name) {
                let message = format!("unknown key `{}` in {}", shown(name), self.heading);
                let fix = match nearest(name, known.iter().copied()) {
                    Some(name) => format!("did you mean `{name}`?"),
                    None => format!("remove it; allowed are {}", known.join(", ")),
                };
                return Err(self.source.error(&key.span(), message, fix));
            }
        }
        Ok(())
    }

    /// The value of a key, if it is there.
    pub(crate) fn value(&self, key: &str) -> Option<&'a Value<'i>> {
        self.table.get(key)
    }

    /// The named tables below a key, in the order of the file.
    pub(crate) fn tables(&self, key: &str) -> Read<Vec<(String, &'a Value<'i>)>> {
        let Some(value) = self.value(key) else {
            return Ok(Vec::new());
        };
        let DeValue::Table(table) = value.get_ref() else {
            return Err(self.wrong_type(key, value, "a table of tables", &format!("[{key}.NAME]")));
        };
        let mut tables: Vec<_> = table.iter().collect();
        tables.sort_by_key(|(name, _)| name.span().start);
        Ok(tables
            .into_iter()
            .map(|(name, value)| (name.get_ref().to_string(), value))
            .collect())
    }

    /// The tables of an array of tables.
    pub(crate) fn array(&self, key: &str) -> Read<Vec<&'a Value<'i>>> {
        match self.value(key).map(|value| (value, value.get_ref())) {
            None => Ok(Vec::new()),
            Some((_, DeValue::Array(array))) => Ok(array.iter().collect()),
            Some((value, _)) => {
                Err(self.wrong_type(key, value, "an array of tables", &format!("[[{key}]]")))
            }
        }
    }

    /// A text.
    pub(crate) fn text(&self, key: &str) -> Read<Option<&'a str>> {
        self.value(key)
            .map(|value| {
                let text = value.get_ref().as_str();
                text.ok_or_else(|| self.wrong_type(key, value, "text", &format!("{key} = \"…\"")))
            })
            .transpose()
    }

    /// A text that something else parses; `parse` says what is wrong and how it is written.
    pub(crate) fn parsed<T>(
        &self,
        key: &str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Read<Option<T>> {
        let (Some(text), Some(value)) = (self.text(key)?, self.value(key)) else {
            return Ok(None);
        };
        parse(text).map(Some).map_err(|reason| {
            // From behind: a path stands in the message, and may hold anything.
            let (message, fix) = reason.rsplit_once("; ").unwrap_or((&reason, "correct it"));
            let message = format!("`{key}` in {}: {message}", self.heading);
            self.source.error(&value.span(), message, fix)
        })
    }

    /// A duration with its unit.
    pub(crate) fn duration(&self, key: &str) -> Read<Option<Duration>> {
        if let Some(value) = self.value(key).filter(|v| v.get_ref().is_integer()) {
            return Err(self.wrong_type(
                key,
                value,
                "a duration with its unit",
                &format!("{key} = \"15s\""),
            ));
        }
        self.parsed(key, units::duration)
    }

    /// A size with its unit.
    pub(crate) fn size(&self, key: &str) -> Read<Option<usize>> {
        if let Some(value) = self.value(key).filter(|v| v.get_ref().is_integer()) {
            return Err(self.wrong_type(
                key,
                value,
                "a size with its unit",
                &format!("{key} = \"8MiB\""),
            ));
        }
        self.parsed(key, units::size)
    }

    /// A whole number in a range.
    pub(crate) fn integer(&self, key: &str, range: RangeInclusive<u32>) -> Read<Option<u32>> {
        let Some(value) = self.value(key) else {
            return Ok(None);
        };
        let number = value.get_ref().as_integer();
        let number = number.and_then(|n| u32::from_str_radix(n.as_str(), n.radix()).ok());
        match number.filter(|number| range.contains(number)) {
            Some(number) => Ok(Some(number)),
            None => {
                let (low, high) = (range.start(), range.end());
                let message = format!("`{key}` in {} must be a whole number", self.heading);
                let fix = format!("write a number from {low} to {high}, without quotes");
                Err(self.source.error(&value.span(), message, fix))
            }
        }
    }

    /// One of a few words.
    pub(crate) fn choice<T: Copy>(&self, key: &str, words: &[(&str, T)]) -> Read<Option<T>> {
        self.parsed(key, |text| choose(text, words))
    }

    /// True or false.
    pub(crate) fn flag(&self, key: &str) -> Read<Option<bool>> {
        self.value(key)
            .map(|value| {
                let flag = value.get_ref().as_bool();
                flag.ok_or_else(|| {
                    self.wrong_type(key, value, "true or false", &format!("{key} = true"))
                })
            })
            .transpose()
    }

    /// A list of texts.
    pub(crate) fn texts(&self, key: &str) -> Read<Option<Vec<&'a str>>> {
        let Some(value) = self.value(key) else {
            return Ok(None);
        };
        let wrong = || self.wrong_type(key, value, "a list of texts", &format!("{key} = [\"…\"]"));
        let array = value.get_ref().as_array().ok_or_else(wrong)?;
        let texts = array
            .iter()
            .map(|item| item.get_ref().as_str().ok_or_else(wrong));
        texts.collect::<Read<Vec<_>>>().map(Some)
    }

    /// A URL, its references to secrets resolved.
    pub(crate) fn url(&self, key: &str) -> Read<SecretUrl> {
        self.optional_url(key)?.ok_or_else(|| {
            self.source.error(
                &self.span,
                format!("{} has no `{key}`", self.heading),
                format!("add {key} = \"…\""),
            )
        })
    }

    /// The same, if it is there.
    pub(crate) fn optional_url(&self, key: &str) -> Read<Option<SecretUrl>> {
        let resolved = self.parsed(key, |text| secrets::resolve(text, &self.source.folder))?;
        Ok(resolved.map(SecretUrl::new))
    }

    /// An error about the value of a key.
    pub(crate) fn error(
        &self,
        key: &str,
        message: impl std::fmt::Display,
        fix: &str,
    ) -> ConfigError {
        let span = self
            .value(key)
            .map_or_else(|| self.span.clone(), Spanned::span);
        self.source.error(&span, message, fix)
    }

    fn wrong_type(&self, key: &str, value: &Value<'i>, wanted: &str, example: &str) -> ConfigError {
        let found = value.get_ref().type_str();
        let message = format!(
            "`{key}` in {} must be {wanted}, found {found}",
            self.heading
        );
        self.source
            .error(&value.span(), message, format!("write {example}"))
    }
}

/// The meaning of a word.
pub(crate) fn choose<T: Copy>(text: &str, words: &[(&str, T)]) -> Result<T, String> {
    let found = words.iter().find(|(word, _)| *word == text);
    found.map(|&(_, value)| value).ok_or_else(|| {
        let names: Vec<_> = words.iter().map(|(word, _)| *word).collect();
        let text = shown(text);
        format!("`{text}` is not allowed; write {}", names.join(" or "))
    })
}
