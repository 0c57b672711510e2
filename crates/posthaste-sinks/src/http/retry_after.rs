//! The wait that an endpoint asks for (`Retry-After`).

use std::time::Duration;

use jiff::{Timestamp, civil::DateTime, tz::TimeZone};

/// The three forms of a date in HTTP (RFC 9110), all in GMT; two of them are obsolete.
const DATES: [&str; 3] = [
    "%a, %d %b %Y %H:%M:%S GMT",
    "%A, %d-%b-%y %H:%M:%S GMT",
    "%a %b %e %H:%M:%S %Y",
];

/// The wait in the value of the header: seconds, or the time until a date. None: neither, or no
/// wait.
pub(super) fn wait(value: &str, now: Timestamp) -> Option<Duration> {
    let value = value.trim();
    let seconds = match value.bytes().all(|byte| byte.is_ascii_digit()) {
        // Digits that are too many are a very long time.
        true if !value.is_empty() => value.parse().unwrap_or(u64::MAX),
        _ => {
            let until = date(value)?.as_second();
            u64::try_from(until.saturating_sub(now.as_second())).ok()?
        }
    };
    // Nobody waits for a year, and larger numbers overflow elsewhere.
    let seconds = seconds.min(31_536_000);
    (seconds > 0).then(|| Duration::from_secs(seconds))
}

fn date(text: &str) -> Option<Timestamp> {
    let parsed = DATES
        .iter()
        .find_map(|form| DateTime::strptime(form, text).ok());
    let zoned = parsed?.to_zoned(TimeZone::UTC).ok()?;
    Some(zoned.timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_and_dates_are_waits() {
        let now: Timestamp = "1994-11-06T08:49:30Z".parse().unwrap();
        for (value, seconds) in [
            ("120", Some(120)),
            (" 7 ", Some(7)),
            ("0", None),
            ("99999999999999999999999", Some(31_536_000)),
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some(7)),
            ("Sunday, 06-Nov-94 08:49:37 GMT", Some(7)),
            ("Sun Nov  6 08:49:37 1994", Some(7)),
            ("Sun, 06 Nov 1994 08:49:30 GMT", None),
            ("Sun, 06 Nov 1994 08:49:29 GMT", None),
            ("Mon, 06 Nov 1995 08:49:30 GMT", Some(31_536_000)),
            ("Sun, 06 Nov 1994 08:49:37", None),
            ("-1", None),
            ("1.5", None),
            ("soon", None),
            ("", None),
        ] {
            let found = wait(value, now).map(|wait| wait.as_secs());
            assert_eq!(found, seconds, "{value}");
        }
    }
}
