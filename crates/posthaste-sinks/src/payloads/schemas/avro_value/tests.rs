//! JSON as people write it, read back by the crate's own reader.

use apache_avro::reader::datum::GenericDatumReader;
use serde_json::json;

use super::*;
use crate::payloads::schemas::{avro::Avro, source::Source};

/// The value as a reader of Avro has it, or the misfit.
fn read(schema: &Json, payload: &Json) -> Result<Value, String> {
    let text = schema.to_string();
    let avro = Avro::compile(&Source {
        text: text.clone(),
        references: Vec::new(),
    });
    let mut written = Vec::new();
    avro.unwrap()
        .write(payload.to_string().as_bytes(), &mut written)?;
    let schema = Schema::parse_str(&text).unwrap();
    let reader = GenericDatumReader::builder(&schema).build().unwrap();
    let mut rest = &written[..];
    let value = reader.read_value(&mut rest).unwrap();
    assert!(rest.is_empty());
    Ok(value)
}

fn misfit(schema: &Json, payload: &Json) -> String {
    read(schema, payload).unwrap_err()
}

#[test]
fn values_of_each_kind_come_back() {
    for (schema, payload, value) in [
        (json!("null"), json!(null), Value::Null),
        (json!("boolean"), json!(true), Value::Boolean(true)),
        (json!("int"), json!(-5), Value::Int(-5)),
        (json!("long"), json!(i64::MIN), Value::Long(i64::MIN)),
        (json!("float"), json!(0.5), Value::Float(0.5)),
        (json!("double"), json!(0.1), Value::Double(0.1)),
        (json!("double"), json!(3), Value::Double(3.0)),
        (
            json!("bytes"),
            json!("\u{0}\u{ff}"),
            Value::Bytes(vec![0, 255]),
        ),
        (json!("string"), json!("ä"), Value::String("ä".to_owned())),
        (
            json!({"type": "array", "items": "int"}),
            json!([1, 2]),
            Value::Array(vec![Value::Int(1), Value::Int(2)]),
        ),
        (
            json!({"type": "map", "values": "int"}),
            json!({"a": 1}),
            Value::Map([("a".to_owned(), Value::Int(1))].into()),
        ),
        (
            json!({"type": "enum", "name": "E", "symbols": ["A", "B"]}),
            json!("B"),
            Value::Enum(1, "B".to_owned()),
        ),
        (
            json!({"type": "fixed", "name": "F", "size": 2}),
            json!("ab"),
            Value::Fixed(2, b"ab".to_vec()),
        ),
        (
            json!({"type": "int", "logicalType": "date"}),
            json!("1970-01-11"),
            Value::Date(10),
        ),
        (
            json!({"type": "long", "logicalType": "timestamp-millis"}),
            json!("1970-01-01T00:00:01.002Z"),
            Value::TimestampMillis(1_002),
        ),
        (
            json!({"type": "long", "logicalType": "timestamp-micros"}),
            json!(7),
            Value::TimestampMicros(7),
        ),
        (
            json!({"type": "string", "logicalType": "uuid"}),
            json!("67e55044-10b1-426f-9247-bb680e5fe0c8"),
            Value::Uuid("67e55044-10b1-426f-9247-bb680e5fe0c8".parse().unwrap()),
        ),
    ] {
        assert_eq!(read(&schema, &payload), Ok(value), "{schema} {payload}");
    }
}

#[test]
fn decimals_keep_every_digit() {
    let bytes = json!({"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 2});
    let fixed = json!({"type": "fixed", "name": "F", "size": 4, "logicalType": "decimal",
        "precision": 9, "scale": 2});
    for (payload, unscaled) in [
        (json!("12.5"), 1_250),
        (json!(12.5), 1_250),
        (json!("-0.01"), -1),
        (json!("-1.28"), -128),
        (json!("1.28"), 128),
        (json!("0"), 0),
        (json!("00012.500"), 1_250),
    ] {
        for schema in [&bytes, &fixed] {
            let Ok(Value::Decimal(decimal)) = read(schema, &payload) else {
                panic!("{payload}");
            };
            let found: Vec<u8> = decimal.try_into().unwrap();
            let negative = found[0] & 0x80 != 0;
            let sign = if negative { -1_i64 } else { 0 };
            let number = found.iter().fold(sign, |n, byte| n << 8 | i64::from(*byte));
            assert_eq!(number, unscaled, "{payload}");
        }
    }
    for (schema, payload, said) in [
        (
            &bytes,
            json!("1.234"),
            "2 digits behind the point, and it has 3",
        ),
        (&fixed, json!("12345678.90"), "9 digits, and it has 10"),
        (&bytes, json!("1e5"), "such as \"12.50\""),
        (&bytes, json!(""), "such as \"12.50\""),
        (&bytes, json!(true), "as a number or a text"),
        (&bytes, json!(12_345_678_901_234.567), "write it as a text"),
    ] {
        let words = misfit(schema, &payload);
        assert!(words.contains(said), "{words}");
    }
}

#[test]
fn unions_are_read_bare_and_as_avro_names_them() {
    let schema = json!(["null", "int", "double", "string",
        {"type": "record", "name": "R", "namespace": "n", "fields": [{"name": "a", "type": "int"}]},
        {"type": "array", "items": "int"}]);
    let record = || Value::Record(vec![("a".to_owned(), Value::Int(1))]);
    for (payload, at, value) in [
        (json!(null), 0, Value::Null),
        (json!(1), 1, Value::Int(1)),
        (json!({"int": 1}), 1, Value::Int(1)),
        (json!({"double": 1}), 2, Value::Double(1.0)),
        (json!(1.5), 2, Value::Double(1.5)),
        (json!({"string": "x"}), 3, Value::String("x".to_owned())),
        (json!({"a": 1}), 4, record()),
        (json!({"n.R": {"a": 1}}), 4, record()),
        (json!({"array": [1]}), 5, Value::Array(vec![Value::Int(1)])),
    ] {
        let wanted = Value::Union(at, Box::new(value));
        assert_eq!(read(&schema, &payload), Ok(wanted), "{payload}");
    }
    assert!(misfit(&schema, &json!({"b": 1})).contains("none of the union's 6 forms"));
    let optional = json!(["null", {"type": "record", "name": "R", "fields": [
        {"name": "a", "type": "int"}]}]);
    let words = misfit(&optional, &json!({"a": "x"}));
    assert!(words.starts_with("`a`: a number of 32 bits"), "{words}");
}

#[test]
fn records_take_defaults_and_no_other_fields() {
    let schema = json!({"type": "record", "name": "R", "fields": [
        {"name": "a", "type": "int"},
        {"name": "b", "type": "bytes", "default": "\u{ff}"},
        {"name": "next", "type": ["null", "R"], "default": null}]});
    let inner = |next| {
        Value::Record(vec![
            ("a".to_owned(), Value::Int(1)),
            ("b".to_owned(), Value::Bytes(vec![255])),
            ("next".to_owned(), next),
        ])
    };
    let none = || Value::Union(0, Box::new(Value::Null));
    let wanted = inner(Value::Union(1, Box::new(inner(none()))));
    assert_eq!(
        read(&schema, &json!({"a": 1, "next": {"a": 1}})),
        Ok(wanted)
    );
    let alias = json!({"type": "record", "name": "R", "fields": [
        {"name": "a", "aliases": ["old"], "type": "int", "default": 0}]});
    let words = misfit(&alias, &json!({"old": 1}));
    assert_eq!(words, "`old`: the schema's record `R` has no such field");
    let words = misfit(&schema, &json!({"a": 1, "next": {}}));
    assert_eq!(words, "`next.a`: it is missing, and has no default");
    let words = misfit(&schema, &json!({"a": 1, "next": {"a": 1, "x": 2}}));
    assert_eq!(words, "`next.x`: the schema's record `R` has no such field");
}

#[test]
fn unions_inside_unions_take_no_time_without_an_end() {
    // Each of two forms is tried at each level, and the last fits neither.
    let forks = json!({"type": "record", "name": "A", "fields": [
        {"name": "n", "type": ["null", "A", {"type": "record", "name": "B", "fields": [
            {"name": "n", "type": ["null", "A", "B"]}]}]}]});
    let mut payload = json!({"n": 1});
    for _ in 0..40 {
        payload = json!({"n": payload});
    }
    let words = misfit(&forks, &payload);
    assert!(words.contains("none of the union's"), "{words}");
}

#[test]
fn nothing_is_rounded_or_cut_without_a_word() {
    for (schema, payload) in [
        (json!("double"), json!(9_007_199_254_740_993_i64)),
        (json!("float"), json!(16_777_217)),
        (json!("float"), json!(1e-60)),
        (json!("float"), json!(1e60)),
        (
            json!({"type": "int", "logicalType": "date"}),
            json!("2026-01-31T23:59:59"),
        ),
        (
            json!({"type": "long", "logicalType": "timestamp-millis"}),
            json!("2016-12-31T23:59:60Z"),
        ),
    ] {
        assert!(read(&schema, &payload).is_err(), "{schema} {payload}");
    }
    let decimal = json!({"type": "record", "name": "R", "fields": [{"name": "d", "default": "12",
        "type": {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}}]});
    let Ok(Value::Record(fields)) = read(&decimal, &json!({})) else {
        panic!("it has a default");
    };
    let Value::Decimal(default) = fields[0].1.clone() else {
        panic!("{fields:?}");
    };
    assert_eq!(Vec::<u8>::try_from(default).unwrap(), b"12");
}
