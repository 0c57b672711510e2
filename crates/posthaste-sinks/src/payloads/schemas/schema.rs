//! A schema of the registry, and payloads in its form.

use bytes::Bytes;

use super::{avro::Avro, json::JsonSchema, protobuf::Protobuf, source::Source};

/// A schema with its number in the registry.
#[derive(Debug)]
pub(super) struct Schema {
    id: u32,
    format: Format,
}

#[derive(Debug)]
enum Format {
    Avro(Avro),
    Json(JsonSchema),
    Protobuf(Protobuf),
}

/// The part of an event that decides the form of its payload.
#[derive(Debug, Clone)]
pub(super) struct Nature {
    pub(super) content_type: Option<String>,
    /// Its type.
    pub(super) kind: Option<String>,
}

impl Schema {
    /// Makes a schema of this type ready.
    ///
    /// # Errors
    /// Its fault.
    pub(super) fn compile(id: u32, kind: &str, source: &Source) -> Result<Self, String> {
        let format = match kind {
            "AVRO" => Format::Avro(Avro::compile(source)?),
            "JSON" => Format::Json(JsonSchema::compile(source)?),
            "PROTOBUF" => Format::Protobuf(Protobuf::compile(source)?),
            _ => return Err("its type is none of AVRO, JSON and PROTOBUF".to_owned()),
        };
        Ok(Self { id, format })
    }

    /// Whether payloads are checked in a time that grows with their size alone. A JSON Schema may
    /// ask for any number of steps.
    pub(super) fn is_quick(&self) -> bool {
        !matches!(self.format, Format::Json(_))
    }

    /// The payload in the registry's wire format: a zero, the schema's number, the value.
    ///
    /// # Errors
    /// Why the payload does not fit the schema.
    pub(super) fn encode(&self, payload: &[u8], nature: &Nature) -> Result<Bytes, String> {
        let mut out = Vec::with_capacity(payload.len() + 8);
        out.push(0);
        out.extend_from_slice(&self.id.to_be_bytes());
        let content_type = nature.content_type.as_deref().unwrap_or_default();
        let kind = nature.kind.as_deref();
        match &self.format {
            // Its writer has put these first bytes there already.
            Format::Avro(_) if content_type.contains("avro") && payload.starts_with(&out) => {
                out.extend_from_slice(&payload[out.len()..]);
            }
            // Not read: the crate's reader goes as deep as bytes tell it to, beyond any stack.
            Format::Avro(_) if content_type.contains("avro") => out.extend_from_slice(payload),
            Format::Avro(avro) => avro.write(payload, &mut out)?,
            Format::Json(json) => {
                json.verify(payload)?;
                out.extend_from_slice(payload);
            }
            Format::Protobuf(protobuf) if content_type.contains("protobuf") => {
                protobuf.copy(kind, payload, &mut out)?;
            }
            Format::Protobuf(protobuf) => protobuf.write(kind, payload, &mut out)?,
        }
        Ok(Bytes::from(out.into_boxed_slice()))
    }
}
