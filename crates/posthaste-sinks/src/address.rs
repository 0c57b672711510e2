//! Addresses of sinks: `scheme:path?option=value&…`, with or without `//` before the path.

#[cfg(feature = "_servers")]
// An endpoint of AWS has no login.
#[cfg_attr(
    not(any(
        feature = "amqp10",
        feature = "http",
        feature = "kafka",
        feature = "mqtt",
        feature = "nats",
        feature = "rabbitmq",
        feature = "redis"
    )),
    allow(dead_code)
)]
pub(crate) mod authority;

use std::{path::PathBuf, time::Duration};

use posthaste_engine::{
    AddressForm, OptionSpec, PlugIn, SinkError, parse_duration, parse_file_mode,
};

/// A parsed address. It has no `Debug`: it may hold a password.
pub(crate) struct Address {
    scheme: String,
    /// Still with its percent escapes: in an authority they protect `@`, `:` and `/`.
    path: String,
    /// None: without a `=`.
    options: Vec<(String, Option<String>)>,
    /// A bare `@` stands behind the first `?`: what is taken for options may be the rest of a
    /// password that holds a bare `?`.
    doubtful: bool,
}

/// The name in errors of an address without a scheme.
const NO_ADDRESS: &str = "destination address";

impl Address {
    /// Splits an address.
    ///
    /// # Errors
    /// [`SinkError::Misconfigured`] without a scheme, or with an option that has a broken percent
    /// escape in it.
    pub(crate) fn parse(url: &str) -> Result<Self, SinkError> {
        let (scheme, rest) = url
            .split_once(':')
            .filter(|(scheme, _)| is_scheme(scheme))
            .ok_or_else(|| misconfigured(NO_ADDRESS, "it has no scheme".to_owned()))?;
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut address = Self {
            scheme: scheme.to_ascii_lowercase(),
            path: path.strip_prefix("//").unwrap_or(path).to_owned(),
            options: Vec::new(),
            doubtful: query.contains('@'),
        };
        for option in query.split('&').filter(|option| !option.is_empty()) {
            address.add_option(option)?;
        }
        Ok(address)
    }

    fn add_option(&mut self, option: &str) -> Result<(), SinkError> {
        let (name, value) = match option.split_once('=') {
            Some((name, value)) => (name, Some(self.decode(value)?)),
            None => (option, None),
        };
        let value = value.map(String::from_utf8).transpose();
        let value = value.map_err(|_| self.misconfigured("an option is not UTF-8".to_owned()))?;
        self.options.push((name.to_owned(), value));
        Ok(())
    }

    fn decode(&self, text: &str) -> Result<Vec<u8>, SinkError> {
        let mut out = Vec::with_capacity(text.len());
        let mut rest = text.as_bytes();
        while let Some((&byte, tail)) = rest.split_first() {
            if byte != b'%' {
                out.push(byte);
                rest = tail;
                continue;
            }
            let digit = |at: usize| tail.get(at).and_then(|&c| char::from(c).to_digit(16));
            let byte = digit(0)
                .zip(digit(1))
                .and_then(|(high, low)| u8::try_from(high * 16 + low).ok())
                .ok_or_else(|| {
                    self.misconfigured(
                        "a broken percent escape; write a percent sign itself as %25".to_owned(),
                    )
                })?;
            out.push(byte);
            rest = &tail[2..];
        }
        Ok(out)
    }

    /// The kind of sink, in lower case.
    pub(crate) fn scheme(&self) -> &str {
        &self.scheme
    }

    /// The bytes after `scheme:` or `scheme://`, percent-decoded.
    ///
    /// # Errors
    /// [`SinkError::Misconfigured`] on a broken percent escape.
    pub(crate) fn path(&self) -> Result<Vec<u8>, SinkError> {
        self.decode(&self.path)
    }

    /// Refuses what the sink's row does not know: a path where it has none, an option that it does
    /// not have, and a value that the option does not take; and an option without a value, or with
    /// two.
    pub(crate) fn check(&self, plug_in: &PlugIn) -> Result<(), SinkError> {
        if plug_in.address == AddressForm::Bare && !self.path.is_empty() {
            let scheme = &self.scheme;
            return Err(self.misconfigured(format!("it takes no path; write `{scheme}:`")));
        }
        for (at, (name, value)) in self.options.iter().enumerate() {
            let Some(option) = plug_in.option(name) else {
                return Err(self.misconfigured(unknown_option(name, plug_in)));
            };
            let Some(value) = value else {
                let reason = format!("option without a value; write {name}=VALUE");
                return Err(self.misconfigured(reason));
            };
            if self.options[..at].iter().any(|(former, _)| former == name) {
                return Err(self.misconfigured(format!("option `{name}` is given twice")));
            }
            self.check_value(option, value)?;
        }
        Ok(())
    }

    fn check_value(&self, option: &OptionSpec, value: &str) -> Result<(), SinkError> {
        option
            .check(value)
            .map_err(|reason| self.misconfigured(reason))
    }

    /// An option's value, as it is given.
    pub(crate) fn given(&self, option: &OptionSpec) -> Option<&str> {
        self.options
            .iter()
            .find(|(name, _)| name == option.name)
            .and_then(|(_, value)| value.as_deref())
    }

    /// An option's value, given or by default.
    pub(crate) fn text(&self, option: &OptionSpec) -> Option<&str> {
        self.given(option).or_else(|| option.default_value())
    }

    /// An option's value as the path of a file.
    #[allow(dead_code)] // Some builds have no sink with such an option.
    pub(crate) fn file(&self, option: &OptionSpec) -> Option<PathBuf> {
        self.text(option).map(PathBuf::from)
    }

    /// An option's value as a number.
    pub(crate) fn number(&self, option: &OptionSpec) -> Result<Option<u64>, SinkError> {
        self.parsed(option, |text| text.parse().ok())
    }

    /// An option's value as a time.
    #[allow(dead_code)] // Some builds have no sink with such an option.
    pub(crate) fn duration(&self, option: &OptionSpec) -> Result<Option<Duration>, SinkError> {
        self.parsed(option, parse_duration)
    }

    /// An option's value as the rights of a file.
    pub(crate) fn file_mode(&self, option: &OptionSpec) -> Result<Option<u32>, SinkError> {
        self.parsed(option, parse_file_mode)
    }

    fn parsed<T>(
        &self,
        option: &OptionSpec,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<T>, SinkError> {
        let Some(text) = self.text(option) else {
            return Ok(None);
        };
        self.check_value(option, text)?;
        Ok(parse(text))
    }

    /// An error about this address. It names the scheme alone: the rest may hold a password, and so
    /// may the reason, if the address is doubtful.
    pub(crate) fn misconfigured(&self, reason: String) -> SinkError {
        let reason = match self.doubtful {
            false => reason,
            true => "something is wrong with it, and a bare `@` stands behind the `?`, where it \
                     ends no password; write in user and password `?` as %3F, and in an option `@` \
                      as %40"
                .to_owned(),
        };
        misconfigured(&format!("destination address `{}:`", self.scheme), reason)
    }
}

/// Refuses an address without a scheme, and names `examples`.
///
/// # Errors
/// [`SinkError::Misconfigured`] without a scheme.
pub(crate) fn expect_scheme(url: &str, examples: &[&str]) -> Result<(), SinkError> {
    if url
        .split_once(':')
        .is_some_and(|(scheme, _)| is_scheme(scheme))
    {
        return Ok(());
    }
    let examples = examples.join("`, `");
    let reason = format!("it has no scheme; write it as one of `{examples}`");
    Err(misconfigured(NO_ADDRESS, reason))
}

fn misconfigured(target: &str, reason: String) -> SinkError {
    SinkError::Misconfigured {
        target: target.to_owned(),
        reason,
    }
}

fn is_scheme(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
}

/// Does not repeat the name, which may be the rest of a password that holds a bare `&`.
fn unknown_option(name: &str, plug_in: &PlugIn) -> String {
    if plug_in.options.is_empty() {
        return "it takes no options; remove all behind the `?`".to_owned();
    }
    match plug_in.nearest_option(name) {
        Some(near) => format!("an unknown option; did you mean `{near}`?"),
        None => format!(
            "an unknown option; it knows {} (write `&` in a value as %26)",
            plug_in.option_names()
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_decoded() {
        for (url, path) in [
            ("file:///a/b", &b"/a/b"[..]),
            ("file://a/b", b"a/b"),
            ("file:a", b"a"),
            ("file:///a%20b%3f%FF", b"/a b?\xff"),
            ("FILE:///a#b", b"/a#b"),
        ] {
            let address = Address::parse(url).unwrap();
            assert_eq!(address.scheme(), "file");
            assert_eq!(address.path().unwrap(), path, "{url}");
        }
    }

    #[test]
    fn options_are_found() {
        let address = Address::parse("file:///a?x=1&y=%41=").unwrap();
        let given = |name| {
            address.given(&OptionSpec {
                name,
                ..crate::descriptors::file::MODE
            })
        };
        assert_eq!(given("x"), Some("1"));
        assert_eq!(given("y"), Some("A="));
        assert_eq!(given("z"), None);
    }
}
