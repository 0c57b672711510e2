//! Payloads as Protocol Buffers.

use std::collections::HashMap;

use prost_reflect::{
    DescriptorPool, DynamicMessage, FileDescriptor, MessageDescriptor, prost::Message as _,
};
use protox::{
    Compiler,
    file::{ChainFileResolver, File, FileResolver, GoogleFileResolver},
};

use super::source::{Source, not_json};

/// The name of the file that a subject's schema is.
const FILE: &str = "posthaste-subject.proto";

/// The messages of a file, the outer ones before those inside them.
#[derive(Debug)]
pub(super) struct Protobuf(Vec<Message>);

#[derive(Debug)]
struct Message {
    descriptor: MessageDescriptor,
    /// Its place in the file, as readers of the registry's format find it.
    place: Vec<u8>,
}

/// The files that a schema imports.
struct Files(HashMap<String, String>);

impl FileResolver for Files {
    fn open_file(&self, name: &str) -> Result<File, protox::Error> {
        let text = self.0.get(name);
        let text = text.ok_or_else(|| protox::Error::file_not_found(name))?;
        File::from_source(name, text)
    }
}

impl Protobuf {
    pub(super) fn compile(source: &Source) -> Result<Self, String> {
        let mut files: HashMap<_, _> = source.references.iter().cloned().collect();
        files.insert(FILE.to_owned(), source.text.clone());
        let mut resolver = ChainFileResolver::new();
        resolver.add(Files(files));
        resolver.add(GoogleFileResolver::new());
        let mut compiler = Compiler::with_file_resolver(resolver);
        compiler
            .open_file(FILE)
            .map_err(|error| error.to_string())?;
        let pool: DescriptorPool = compiler.descriptor_pool();
        let file = pool.get_file_by_name(FILE);
        let messages = messages(&file.ok_or("it has no file")?);
        match messages.is_empty() {
            true => Err("it has no message".to_owned()),
            false => Ok(Self(messages)),
        }
    }

    /// The message of this name, with its package or without; the first one if there is none.
    fn message(&self, name: Option<&str>) -> Result<&Message, String> {
        let find = |is_it: &dyn Fn(&MessageDescriptor) -> bool| {
            self.0.iter().find(|message| is_it(&message.descriptor))
        };
        let named = name.and_then(|name| {
            find(&|known| known.full_name() == name)
                .or_else(|| find(&|known| without_package(known) == name))
                .or_else(|| find(&|known| known.name() == name))
        });
        let message = named.or(self.0.first());
        message.ok_or_else(|| "the schema has no message".to_owned())
    }

    /// Writes JSON behind what is there.
    pub(super) fn write(
        &self,
        name: Option<&str>,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), String> {
        let message = self.message(name)?;
        let mut reader = serde_json::Deserializer::from_slice(payload);
        let read = DynamicMessage::deserialize(message.descriptor.clone(), &mut reader);
        let read = read.and_then(|read| reader.end().map(|()| read));
        let read = read.map_err(|error| match error.is_data() {
            true => {
                let fault = without_values(&error);
                format!("as `{}`: {fault}", message.descriptor.full_name())
            }
            false => not_json(&error),
        })?;
        out.extend_from_slice(&message.place);
        read.encode(out).map_err(|error| error.to_string())
    }

    /// Writes bytes that are a message already behind what is there.
    pub(super) fn copy(
        &self,
        name: Option<&str>,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), String> {
        let message = self.message(name)?;
        DynamicMessage::decode(message.descriptor.clone(), payload)
            .map_err(|error| format!("as `{}`: {error}", message.descriptor.full_name()))?;
        out.extend_from_slice(&message.place);
        out.extend_from_slice(payload);
        Ok(())
    }
}

fn without_package(message: &MessageDescriptor) -> &str {
    let (name, package) = (message.full_name(), message.package_name());
    let inside = name.strip_prefix(package);
    inside.map_or(name, |name| name.trim_start_matches('.'))
}

/// The place of a fault, without values of the payload, which may be secret.
fn without_values(error: &serde_json::Error) -> String {
    let (words, line, column) = (error.to_string(), error.line(), error.column());
    match words.starts_with("unrecognized field name") {
        true => words,
        false => format!("a value that does not fit at line {line} column {column}"),
    }
}

fn messages(file: &FileDescriptor) -> Vec<Message> {
    let mut all = Vec::new();
    let mut level: Vec<_> = numbered(file.messages(), &[]);
    while !level.is_empty() {
        let inner = level.iter().flat_map(|(message, place)| {
            // A map's entries are no messages that anybody sends.
            let inner = message.child_messages();
            numbered(inner, place)
                .into_iter()
                .filter(|(inner, _)| !inner.is_map_entry())
                .collect::<Vec<_>>()
        });
        let inner = inner.collect();
        all.append(&mut level);
        level = inner;
    }
    all.into_iter()
        .map(|(descriptor, place)| Message {
            descriptor,
            place: written(&place),
        })
        .collect()
}

fn numbered(
    messages: impl Iterator<Item = MessageDescriptor>,
    outer: &[u64],
) -> Vec<(MessageDescriptor, Vec<u64>)> {
    let places = (0..).map(|at| [outer, &[at]].concat());
    messages.zip(places).collect()
}

/// A message's place: the count of its numbers, and these, as zigzag numbers of variable length.
/// The first message, the usual one, is a single zero.
fn written(place: &[u64]) -> Vec<u8> {
    let mut out = Vec::new();
    if place == [0] {
        out.push(0);
        return out;
    }
    for number in std::iter::once(place.len() as u64).chain(place.iter().copied()) {
        prost_reflect::prost::encoding::encode_varint(number << 1, &mut out);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_written_as_readers_expect_them() {
        assert_eq!(written(&[0]), [0]);
        assert_eq!(written(&[1]), [2, 2]);
        assert_eq!(written(&[0, 3]), [4, 0, 6]);
        assert_eq!(written(&[70]), [2, 0x8c, 1]);
    }
}
