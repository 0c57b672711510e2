//! Payloads as Avro.

use apache_avro::{Schema, schema::ResolvedSchema, writer::datum::GenericDatumWriter};

use super::{
    avro_value::Reading,
    source::{Source, not_json},
};

/// A schema, and those that it names.
#[derive(Debug)]
pub(super) struct Avro {
    schema: Schema,
    /// Each names only those before it.
    others: Vec<Schema>,
}

impl Avro {
    pub(super) fn compile(source: &Source) -> Result<Self, String> {
        let others = source.references.iter().map(|(_, text)| text);
        let (schema, others) =
            Schema::parse_str_with_list(&source.text, others).map_err(|error| error.to_string())?;
        let avro = Self { schema, others };
        avro.resolved()
            .map(drop)
            .map_err(|error| error.to_string())?;
        Ok(avro)
    }

    fn resolved(&self) -> Result<ResolvedSchema<'_>, apache_avro::Error> {
        ResolvedSchema::new_with_schemata(self.others.iter().chain([&self.schema]).collect())
    }

    /// Writes JSON behind what is there.
    pub(super) fn write(&self, payload: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
        let json = serde_json::from_slice(payload).map_err(|error| not_json(&error))?;
        let told = |error: apache_avro::Error| error.to_string();
        let resolved = self.resolved().map_err(told)?;
        let reading = Reading::new(resolved.get_names(), payload.len());
        let value = reading.value(&json, &self.schema);
        let value = value.map_err(|misfit| misfit.told())?;
        let writer = GenericDatumWriter::builder(&self.schema)
            .resolved_schemata(resolved)
            .build()
            .map_err(told)?;
        writer.write_value(out, value).map_err(told)?;
        Ok(())
    }
}
