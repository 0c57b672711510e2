//! Values of JSON as an Avro schema has them.
//!
//! JSON is read as people write it: a value of a union stands there bare, or as in Avro's own JSON,
//! `{"BRANCH": value}`. Nothing is left out and nothing is rounded: a field that the schema lacks
//! is an error.

use std::{cell::Cell, collections::HashMap};

use apache_avro::{
    Schema,
    schema::{DecimalSchema, FixedSchema, InnerDecimalSchema, Name, RecordSchema, UnionSchema},
    types::Value,
};
use jiff::{Timestamp, civil::Date};
use serde_json::{Map, Value as Json};

/// The rules for the values of a payload.
pub(super) struct Reading<'a, 's> {
    /// Schemas by their names.
    names: &'a HashMap<Name, &'s Schema>,
    /// Values that may still be tried: with unions inside unions, they multiply.
    steps: Cell<usize>,
}

impl<'a, 's> Reading<'a, 's> {
    /// Of a payload of so many bytes.
    pub(super) fn new(names: &'a HashMap<Name, &'s Schema>, bytes: usize) -> Self {
        Self {
            names,
            steps: Cell::new(64 * (bytes + 1_000)),
        }
    }

    /// The value that this schema makes of JSON.
    pub(super) fn value(&self, json: &Json, schema: &Schema) -> Result<Value, Misfit> {
        let Some(rest) = self.steps.get().checked_sub(1) else {
            return Err(Misfit::new(
                "it takes too long to find the forms of its unions",
            ));
        };
        self.steps.set(rest);
        value(json, schema, self)
    }
}

/// A value of JSON that does not fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Misfit {
    /// The place of the value, from the inside out.
    path: Vec<String>,
    fault: String,
}

impl Misfit {
    fn new(fault: impl Into<String>) -> Self {
        Self {
            path: Vec::new(),
            fault: fault.into(),
        }
    }

    fn inside(mut self, part: String) -> Self {
        self.path.push(part);
        self
    }

    /// The place and the fault.
    pub(super) fn told(&self) -> String {
        let path: String = self.path.iter().rev().map(String::as_str).collect();
        match path.trim_start_matches('.') {
            "" => self.fault.clone(),
            path => format!("`{path}`: {}", self.fault),
        }
    }
}

fn value(json: &Json, schema: &Schema, reading: &Reading<'_, '_>) -> Result<Value, Misfit> {
    let wanted = |what: &str| Misfit::new(format!("{what} is wanted, and it is {}", kind(json)));
    Ok(match schema {
        Schema::Null => match json {
            Json::Null => Value::Null,
            _ => return Err(wanted("null")),
        },
        Schema::Boolean => Value::Boolean(json.as_bool().ok_or_else(|| wanted("true or false"))?),
        Schema::Int => Value::Int(int(json).ok_or_else(|| wanted("a number of 32 bits"))?),
        Schema::TimeMillis => {
            Value::TimeMillis(int(json).ok_or_else(|| wanted("a number of 32 bits"))?)
        }
        Schema::Date => {
            let days = int(json).or_else(|| days(json.as_str()?));
            Value::Date(days.ok_or_else(|| wanted("a number of days, or YYYY-MM-DD,"))?)
        }
        Schema::Long => Value::Long(json.as_i64().ok_or_else(|| wanted("a number of 64 bits"))?),
        Schema::TimeMicros => {
            Value::TimeMicros(json.as_i64().ok_or_else(|| wanted("a number of 64 bits"))?)
        }
        Schema::TimestampMillis => Value::TimestampMillis(time(json, 1_000_000)?),
        Schema::TimestampMicros => Value::TimestampMicros(time(json, 1_000)?),
        Schema::TimestampNanos => Value::TimestampNanos(time(json, 1)?),
        Schema::LocalTimestampMillis => {
            Value::LocalTimestampMillis(json.as_i64().ok_or_else(|| wanted("a number"))?)
        }
        Schema::LocalTimestampMicros => {
            Value::LocalTimestampMicros(json.as_i64().ok_or_else(|| wanted("a number"))?)
        }
        Schema::LocalTimestampNanos => {
            Value::LocalTimestampNanos(json.as_i64().ok_or_else(|| wanted("a number"))?)
        }
        Schema::Float => {
            let number = double(json)?.ok_or_else(|| wanted("a number"))?;
            #[allow(clippy::cast_possible_truncation)]
            let float = number as f32;
            let is_whole = json.is_i64() || json.is_u64();
            let is_lost = float.is_infinite() || float == 0.0 && number != 0.0;
            #[allow(clippy::float_cmp)]
            if is_lost || is_whole && f64::from(float) != number {
                return Err(Misfit::new("the number does not fit a float"));
            }
            Value::Float(float)
        }
        Schema::Double => Value::Double(double(json)?.ok_or_else(|| wanted("a number"))?),
        Schema::Bytes => Value::Bytes(bytes(json)?),
        Schema::String => Value::String(json.as_str().ok_or_else(|| wanted("a text"))?.to_owned()),
        Schema::Uuid(_) => {
            let uuid = json.as_str().and_then(|text| text.parse().ok());
            Value::Uuid(uuid.ok_or_else(|| wanted("a UUID"))?)
        }
        Schema::Array(array) => {
            let items = json.as_array().ok_or_else(|| wanted("an array"))?.iter();
            let items = items.enumerate().map(|(at, item)| {
                reading
                    .value(item, &array.items)
                    .map_err(|misfit| misfit.inside(format!("[{at}]")))
            });
            Value::Array(items.collect::<Result<_, _>>()?)
        }
        Schema::Map(map) => {
            let entries = json.as_object().ok_or_else(|| wanted("an object"))?.iter();
            let entries = entries.map(|(name, item)| {
                let item = reading.value(item, &map.types);
                Ok((
                    name.clone(),
                    item.map_err(|m| m.inside(format!(".{name}")))?,
                ))
            });
            Value::Map(entries.collect::<Result<_, _>>()?)
        }
        Schema::Union(schema) => union(json, schema, reading)?,
        Schema::Record(schema) => {
            let fields = json.as_object().ok_or_else(|| wanted("an object"))?;
            record(fields, schema, reading)?
        }
        Schema::Enum(schema) => {
            let symbol = json.as_str().ok_or_else(|| wanted("a symbol of an enum"))?;
            let at = schema.symbols.iter().position(|known| known == symbol);
            let at = at.and_then(|at| u32::try_from(at).ok()).ok_or_else(|| {
                let known = schema.symbols.join("`, `");
                Misfit::new(format!("it is none of the symbols `{known}`"))
            })?;
            Value::Enum(at, symbol.to_owned())
        }
        Schema::Fixed(schema) => Value::Fixed(schema.size, fixed(json, schema)?),
        Schema::Duration(schema) => {
            let bytes: [u8; 12] = fixed(json, schema)?
                .try_into()
                .map_err(|_| Misfit::new("a duration has 12 bytes"))?;
            Value::Duration(bytes.into())
        }
        Schema::Decimal(schema) => Value::Decimal(decimal(json, schema)?.into()),
        Schema::Ref { name } => {
            let schema = reading.names.get(name).ok_or_else(|| {
                Misfit::new(format!("the schema names `{name}`, which is not there"))
            })?;
            reading.value(json, schema)?
        }
        Schema::BigDecimal => {
            let fault = "no JSON is written as a `big-decimal`; give the schema a `decimal`";
            return Err(Misfit::new(fault));
        }
    })
}

fn kind(json: &Json) -> &'static str {
    match json {
        Json::Null => "null",
        Json::Bool(_) => "true or false",
        Json::Number(_) => "another number",
        Json::String(_) => "a text",
        Json::Array(_) => "an array",
        Json::Object(_) => "an object",
    }
}

fn int(json: &Json) -> Option<i32> {
    i32::try_from(json.as_i64()?).ok()
}

/// A number, none if it is none. A whole one keeps all of its digits.
fn double(json: &Json) -> Result<Option<f64>, Misfit> {
    let number = json.as_f64();
    let whole = json
        .as_i64()
        .map(i128::from)
        .or(json.as_u64().map(i128::from));
    #[allow(clippy::cast_possible_truncation)]
    if let (Some(number), Some(whole)) = (number, whole)
        && number as i128 != whole
    {
        return Err(Misfit::new("the number has too many digits for a double"));
    }
    Ok(number)
}

/// Days since 1970-01-01.
fn days(text: &str) -> Option<i32> {
    // Nothing but the date: a time or a zone would be lost.
    if text.len() != "2026-01-31".len() {
        return None;
    }
    let date: Date = text.parse().ok()?;
    let days = date.since(Date::constant(1970, 1, 1)).ok()?;
    Some(days.get_days())
}

/// A time as a number, or as RFC 3339 has it, in units of so many nanoseconds.
fn time(json: &Json, unit: i128) -> Result<i64, Misfit> {
    if let Some(number) = json.as_i64() {
        return Ok(number);
    }
    // A leap second would become the one before it.
    let text = json.as_str().filter(|text| !text.contains(":60"));
    let time: Option<Timestamp> = text.and_then(|text| text.parse().ok());
    let nanos = time.map(Timestamp::as_nanosecond);
    let nanos = nanos.ok_or_else(|| {
        let fault = "a number, or a time such as 2026-01-31T08:00:00Z, is wanted";
        Misfit::new(format!("{fault}, and it is {}", kind(json)))
    })?;
    if nanos.rem_euclid(unit) != 0 {
        return Err(Misfit::new("the time is finer than the schema's"));
    }
    i64::try_from(nanos / unit).map_err(|_| Misfit::new("the time is too far away"))
}

/// Bytes in a text, as the specification has them: U+0000 to U+00FF stand for one each.
fn bytes(json: &Json) -> Result<Vec<u8>, Misfit> {
    let text = json.as_str();
    let bytes = text.and_then(|text| text.chars().map(|c| u8::try_from(c).ok()).collect());
    bytes.ok_or_else(|| {
        Misfit::new("bytes are wanted, as a text of the characters U+0000 to U+00FF")
    })
}

fn fixed(json: &Json, schema: &FixedSchema) -> Result<Vec<u8>, Misfit> {
    let bytes = bytes(json)?;
    match bytes.len() == schema.size {
        true => Ok(bytes),
        false => Err(Misfit::new(format!(
            "{} bytes are wanted, and it has {}",
            schema.size,
            bytes.len()
        ))),
    }
}

/// Digits that a number with a fraction keeps on its way through JSON.
const EXACT_DIGITS: usize = 15;

/// The unscaled number of a decimal, in two's complement.
fn decimal(json: &Json, schema: &DecimalSchema) -> Result<Vec<u8>, Misfit> {
    let text = match json {
        Json::Number(number) => {
            let text = number.to_string();
            let is_whole = number.is_i64() || number.is_u64();
            let digits = text.bytes().filter(u8::is_ascii_digit).count();
            if text.contains('e') || !is_whole && digits > EXACT_DIGITS {
                let fault = "the number has too many digits to be exact; write it as a text";
                return Err(Misfit::new(fault));
            }
            text
        }
        Json::String(text) => text.clone(),
        _ => return Err(Misfit::new("a decimal is wanted, as a number or a text")),
    };
    let digits = text.strip_prefix('-').unwrap_or(&text);
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    let is_plain = |digits: &str| digits.bytes().all(|digit| digit.is_ascii_digit());
    if whole.is_empty() || !is_plain(whole) || !is_plain(part) {
        return Err(Misfit::new("a decimal is wanted, such as \"12.50\""));
    }
    let part = part.trim_end_matches('0');
    if part.len() > schema.scale {
        return Err(Misfit::new(format!(
            "the schema has {} digits behind the point, and it has {}",
            schema.scale,
            part.len()
        )));
    }
    let unscaled = format!("{whole}{part:0<width$}", width = schema.scale);
    let unscaled = unscaled.trim_start_matches('0');
    if unscaled.len() > schema.precision {
        return Err(Misfit::new(format!(
            "the schema has {} digits, and it has {}",
            schema.precision,
            unscaled.len()
        )));
    }
    let number: i128 = match unscaled {
        "" => 0,
        digits => digits
            .parse()
            .map_err(|_| Misfit::new("decimals of more than 38 digits are not written"))?,
    };
    let number = if text.starts_with('-') {
        -number
    } else {
        number
    };
    let bytes = number.to_be_bytes();
    // As few as keep the sign.
    let sign = if number < 0 { 0xff } else { 0 };
    let is_spare = |at: &usize| bytes[*at] == sign && (bytes[at + 1] ^ sign) & 0x80 == 0;
    let spare = (0..bytes.len() - 1).take_while(is_spare).count();
    let least = bytes[spare..].to_vec();
    if let InnerDecimalSchema::Fixed(fixed) = &schema.inner
        && least.len() > fixed.size
    {
        return Err(Misfit::new("the number is too large for the schema"));
    }
    Ok(least)
}

fn union(json: &Json, schema: &UnionSchema, reading: &Reading<'_, '_>) -> Result<Value, Misfit> {
    let branches = || (0..).zip(schema.variants());
    if let Some((name, inner)) = only(json) {
        let named = branches().find(|(_, branch)| branch_name(branch) == *name);
        if let Some((at, branch)) = named
            && let Ok(value) = reading.value(inner, branch)
        {
            return Ok(Value::Union(at, Box::new(value)));
        }
    }
    let mut misfits = Vec::new();
    for (at, branch) in branches() {
        match reading.value(json, branch) {
            Ok(value) => return Ok(Value::Union(at, Box::new(value))),
            Err(misfit) if !matches!(branch, Schema::Null) => misfits.push(misfit),
            Err(_) => {}
        }
    }
    match misfits.len() {
        1 => Err(misfits.remove(0)),
        _ => Err(Misfit::new(format!(
            "it is none of the union's {} forms",
            schema.variants().len()
        ))),
    }
}

fn only(json: &Json) -> Option<(&String, &Json)> {
    let object = json.as_object().filter(|object| object.len() == 1)?;
    object.iter().next()
}

/// The name of a branch in Avro's own JSON.
fn branch_name(schema: &Schema) -> String {
    match schema {
        Schema::Ref { name } => name.fullname(None),
        schema => match schema.name() {
            Some(name) => name.fullname(None),
            None => kind_name(schema).to_owned(),
        },
    }
}

fn kind_name(schema: &Schema) -> &'static str {
    match schema {
        Schema::Boolean => "boolean",
        Schema::Int | Schema::Date | Schema::TimeMillis => "int",
        Schema::Float => "float",
        Schema::Double => "double",
        Schema::Bytes | Schema::Decimal(_) | Schema::BigDecimal => "bytes",
        Schema::String | Schema::Uuid(_) => "string",
        Schema::Array(_) => "array",
        Schema::Map(_) => "map",
        Schema::Null => "null",
        _ => "long",
    }
}

fn record(
    object: &Map<String, Json>,
    schema: &RecordSchema,
    reading: &Reading<'_, '_>,
) -> Result<Value, Misfit> {
    // The lookup has aliases too, which are for readers.
    let is_field = |name: &String| {
        let at = schema
            .lookup
            .get(name)
            .and_then(|at| schema.fields.get(*at));
        at.is_some_and(|field| field.name == *name)
    };
    if let Some(other) = object.keys().find(|name| !is_field(name)) {
        let name = schema.name.name();
        let fault = format!("the schema's record `{name}` has no such field");
        return Err(Misfit::new(fault).inside(format!(".{other}")));
    }
    let fields = schema.fields.iter().map(|field| {
        let found = match (object.get(&field.name), &field.default) {
            (Some(json), _) => reading.value(json, &field.schema),
            // As the specification has them: the bytes of the number.
            (None, Some(default)) if matches!(field.schema, Schema::Decimal(_)) => {
                bytes(default).map(|bytes| Value::Decimal(bytes.into()))
            }
            (None, Some(default)) => reading.value(default, &field.schema),
            (None, None) => Err(Misfit::new("it is missing, and has no default")),
        };
        let found = found.map_err(|misfit| misfit.inside(format!(".{}", field.name)))?;
        Ok((field.name.clone(), found))
    });
    Ok(Value::Record(fields.collect::<Result<_, _>>()?))
}

#[cfg(test)]
mod tests;
