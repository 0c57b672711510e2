//! Bytes from outside: the store's URL, and what a server sends as values.

use bolero::check;
use bytes::BytesMut;
use postgres_types::{FromSql, ToSql, Type};
use posthaste_testkit::fuzz::{iterations, percent_encoded, spelled, words};

use super::{
    config::PostgresConfig,
    types::{Headers, Snapshot},
};

const SECRET: &str = "GEHEIM";

const URL_WORDS: &str = "\
    GEHEIM|postgres://|postgresql://|@|:|/|?|&|=|%|%4|%40|%+1|%ff|[|]|[::1]|,|#|ü|:5432|:0|\
    :65536|me|host|?password=|&password=|&port=|?host=|&user=|&sslmode=require|&sslmode|\
    &sslmod=|&connect_timeout=|&tcp_user_timeout=99999999999999999999|&options=|\
    &target_session_attrs=primary|&channel_binding=";

/// Every error says something and repeats no password: here all that was written is one.
#[test]
fn fuzz_urls() {
    check!()
        .with_iterations(iterations(2_000))
        .with_max_len(40)
        .for_each(|input: &[u8]| {
            let text = spelled(input, &words(URL_WORDS));
            if let Err(error) = PostgresConfig::parse(&text) {
                assert!(!error.to_string().is_empty());
            }
            let with_password = format!("postgres://me:{text}@host/db?sslmode=require");
            if let Err(error) = PostgresConfig::parse(&with_password) {
                let said = error.to_string();
                assert!(!said.contains(SECRET), "{with_password}: {said}");
            }
            let without_end = format!("postgres://me:{SECRET}{}", text.replace(SECRET, ""));
            if let Err(error) = PostgresConfig::parse(&without_end) {
                let said = error.to_string();
                assert!(!said.contains(SECRET), "{without_end}: {said}");
            }
        });
}

/// A percent-encoded part comes out as it was, wherever it stands, and is not shown.
#[test]
fn fuzz_encoded_parts() {
    check!()
        .with_iterations(iterations(1_000))
        .with_max_len(24)
        .for_each(|input: &[u8]| {
            let text = format!("{}{SECRET}", spelled(input, &words(URL_WORDS)));
            let part = percent_encoded(&text);
            for url in [
                format!("postgres://{part}:{part}@host:1/{part}"),
                format!("postgres://host:1/{part}?user={part}&password={part}"),
            ] {
                let config = PostgresConfig::parse(&url).unwrap();
                assert_eq!(config.driver.get_user(), Some(&*text));
                assert_eq!(config.driver.get_password(), Some(text.as_bytes()));
                assert_eq!(config.driver.get_dbname(), Some(&*text));
                assert_eq!(config.driver.get_ports(), [1]);
            }
            let url = format!("postgres://me:{part}@host/db");
            let shown = format!("{:?}", PostgresConfig::parse(&url).unwrap());
            assert!(!shown.contains(SECRET), "{shown}");
        });
}

/// An accepted snapshot is one, byte for byte, and answers as its list does.
#[test]
fn fuzz_snapshot() {
    check!()
        .with_iterations(iterations(2_000))
        .with_max_len(60)
        .for_each(|input: &[u8]| {
            let Ok(snapshot) = Snapshot::decode(input) else {
                return;
            };
            let mut bytes = BytesMut::new();
            snapshot.to_sql(&Type::PG_SNAPSHOT, &mut bytes).unwrap();
            assert_eq!(bytes, input);
            assert!(snapshot.covers(&snapshot));
            let ends = [0, u64::MAX];
            for &xid in snapshot.xip().iter().chain(&ends) {
                for xid in [xid.saturating_sub(1), xid, xid.saturating_add(1)] {
                    if snapshot.xip().contains(&xid) {
                        assert!(!snapshot.sees(xid), "{xid} is in progress in {snapshot:?}");
                    }
                }
            }
            assert!(!snapshot.sees(u64::MAX));
        });
}

/// Of two snapshots that PostgreSQL could have taken one after the other, the later one covers the
/// former, and that is what `sees` says number by number.
#[test]
fn fuzz_snapshot_cover() {
    type Taken = (u8, Vec<u8>, u8, Vec<bool>, Vec<u8>);
    check!()
        .with_iterations(iterations(1_000))
        .with_type::<Taken>()
        .for_each(|(xmax, in_progress, later, still, new)| {
            let xmax = u64::from(*xmax) + 3;
            let mut xip: Vec<u64> = in_progress.iter().map(|&x| u64::from(x) + 3).collect();
            // The one below xmax is the latest that has completed.
            xip.retain(|&xid| xid + 1 < xmax);
            xip.sort_unstable();
            xip.dedup();
            let later_xmax = xmax + u64::from(*later);
            let mut still = still.iter().copied().chain(std::iter::repeat(false));
            let mut later_xip: Vec<u64> = xip
                .iter()
                .copied()
                .filter(|_| still.next() == Some(true))
                .collect();
            later_xip.extend(new.iter().map(|&x| xmax + u64::from(x)));
            later_xip.retain(|&xid| xid + 1 < later_xmax);
            later_xip.sort_unstable();
            later_xip.dedup();
            let (former, latter) = (
                Snapshot::new(xmax, xip),
                Snapshot::new(later_xmax, later_xip),
            );
            assert!(latter.covers(&former), "{latter:?} after {former:?}");
            let backwards = (0..later_xmax + 3).all(|xid| !latter.sees(xid) || former.sees(xid));
            assert_eq!(
                former.covers(&latter),
                backwards,
                "{former:?} and {latter:?}"
            );
        });
}

/// Accepted headers have as many pairs as they say, and no bytes beside them.
#[test]
fn fuzz_headers() {
    check!()
        .with_iterations(iterations(2_000))
        .with_max_len(60)
        .for_each(|input: &[u8]| {
            let Ok(headers) = Headers::from_sql(&Type::TEXT_ARRAY, input) else {
                return;
            };
            let pairs: Vec<_> = headers.collect();
            let stated = match input {
                [0, 0, 0, 0, ..] => 0,
                _ => u32::from_be_bytes(input[12..16].try_into().unwrap()) as usize,
            };
            assert_eq!(pairs.len() * 2, stated);
            let held: usize = pairs
                .iter()
                .map(|(name, value)| 8 + name.len() + value.map_or(0, str::len))
                .sum();
            assert!(held <= input.len(), "{held} bytes out of {}", input.len());
        });
}

/// Every array that the table takes comes out as it went in; one with a null for a name does not.
#[test]
fn fuzz_header_arrays() {
    check!()
        .with_iterations(iterations(1_000))
        .with_type::<Vec<Option<String>>>()
        .for_each(|elements| {
            let mut raw = BytesMut::new();
            elements.to_sql(&Type::TEXT_ARRAY, &mut raw).unwrap();
            let read = Headers::from_sql(&Type::TEXT_ARRAY, &raw);
            let whole = elements.len().is_multiple_of(2);
            let named = elements.iter().step_by(2).all(Option::is_some);
            match read {
                Ok(headers) => {
                    assert!(whole && named, "{elements:?}");
                    let pairs = elements.chunks_exact(2);
                    let pairs = pairs.map(|pair| (pair[0].as_deref().unwrap(), pair[1].as_deref()));
                    assert!(headers.eq(pairs), "{elements:?}");
                }
                Err(error) => assert!(!whole || !named, "{elements:?}: {error}"),
            }
            if let Some(cut) = raw.len().checked_sub(1).filter(|_| !elements.is_empty()) {
                assert!(Headers::from_sql(&Type::TEXT_ARRAY, &raw[..cut]).is_err());
            }
        });
}
