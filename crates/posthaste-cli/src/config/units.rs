//! Durations and sizes as people write them: always with a unit.

use std::time::Duration;

use posthaste_engine::shown;

/// Longer than anybody waits, and short enough to be counted in microseconds by every database.
const DURATION_MAX: Duration = Duration::from_secs(1_000 * 31_557_600);

/// Parses `250ms`, `15s`, `1m30s`, `24h`, `30 days`. A bare number is refused, since nobody can
/// know what it counts; so is more than a thousand years.
///
/// # Errors
/// The error, with an example.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    // humantime lets this one bare number pass.
    if text.trim() == "0" {
        return Ok(Duration::ZERO);
    }
    let duration = humantime::parse_duration(text.trim()).map_err(|_| {
        format!(
            "`{}` is not a duration; write a number with a unit, such as 250ms, 15s, 5min or 24h",
            shown(text)
        )
    })?;
    if duration > DURATION_MAX {
        let text = shown(text);
        return Err(format!("`{text}` is too long; write at most 1000years"));
    }
    Ok(duration)
}

/// Parses a point in time with its zone, such as `2026-01-31T08:00:00Z`. Answers microseconds since
/// 1970-01-01 UTC.
///
/// # Errors
/// The error, with an example.
pub(crate) fn time(text: &str) -> Result<i64, String> {
    let time: jiff::Timestamp = text.trim().parse().map_err(|_| {
        format!(
            "`{}` is no point in time; write it with its zone, such as 2026-01-31T08:00:00Z or \
             2026-01-31T09:00:00+01:00",
            shown(text)
        )
    })?;
    Ok(time.as_microsecond())
}

/// Parses `300B`, `64KiB`, `8MiB`, `1.5GiB` (powers of 1024) and `8MB` (powers of 1000). A bare
/// number is refused.
///
/// # Errors
/// The error, with an example.
pub(crate) fn size(text: &str) -> Result<usize, String> {
    let refused = || {
        let text = shown(text);
        format!("`{text}` is not a size; write a number with a unit, such as 300B, 64KiB or 8MiB")
    };
    let trimmed = text.trim();
    let end_of_number = trimmed
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .ok_or_else(refused)?;
    let (number, unit) = trimmed.split_at(end_of_number);
    let unit: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "b" => 1,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "kib" => 1 << 10,
        "mib" => 1 << 20,
        "gib" => 1 << 30,
        _ => return Err(refused()),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let whole: u64 = whole.parse().map_err(|_| refused())?;
    // Six digits are more than anybody means, and keep the arithmetic exact.
    if fraction.is_empty() || fraction.len() > 6 {
        return Err(refused());
    }
    let scale = 10_u64.pow(u32::try_from(fraction.len()).unwrap_or(6));
    let fraction: u64 = fraction.parse().map_err(|_| refused())?;
    let bytes = whole
        .checked_mul(unit)
        .and_then(|bytes| bytes.checked_add(fraction * unit / scale))
        .ok_or_else(refused)?;
    usize::try_from(bytes).map_err(|_| refused())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        assert_eq!(duration("1m30s").unwrap(), Duration::from_secs(90));
        assert_eq!(duration(" 250ms ").unwrap(), Duration::from_millis(250));
        assert_eq!(duration("0").unwrap(), Duration::ZERO);
        for exact in [
            Duration::new(u32::MAX.into(), 999_999_999),
            Duration::new(0, 1),
        ] {
            let written = humantime::format_duration(exact).to_string();
            assert_eq!(duration(&written), Ok(exact), "{written}");
        }
        for bad in ["15", "", "-5s", "1 fortnight"] {
            assert!(duration(bad).unwrap_err().contains("15s"), "{bad}");
        }
    }

    #[test]
    fn a_duration_that_no_database_can_count_is_refused() {
        assert!(duration("1000years").is_ok());
        for bad in ["1001years", "18446744073709551615s"] {
            assert!(duration(bad).unwrap_err().contains("1000years"), "{bad}");
        }
    }

    #[test]
    fn sizes_have_units() {
        assert_eq!(size("300B").unwrap(), 300);
        assert_eq!(size("8MiB").unwrap(), 8 << 20);
        assert_eq!(size("8 mib").unwrap(), 8 << 20);
        assert_eq!(size("1.5GiB").unwrap(), 3 << 29);
        assert_eq!(size("8MB").unwrap(), 8_000_000);
        for (unit, bytes) in [("B", 1), ("kB", 1_000), ("KiB", 1 << 10), ("GiB", 1 << 30)] {
            assert_eq!(size(&format!("4294967295{unit}")), Ok(bytes * 0xffff_ffff));
            assert_eq!(
                size(&format!(" 7.9 {unit} ")),
                Ok(7 * bytes + 9 * bytes / 10)
            );
        }
        for bad in [
            "300",
            "",
            "MiB",
            "1.MiB",
            "1.0000001KiB",
            "8M",
            "-1B",
            "99999999999999GiB",
        ] {
            assert!(size(bad).unwrap_err().contains("8MiB"), "{bad}");
        }
    }
}
