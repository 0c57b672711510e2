//! Values of AMQP 1.0's type system: written as the sink needs them, read whatever they are.

/// Nested values of a peer at the most. Those of the protocol have five levels.
const DEPTH_MAX: usize = 16;
/// Elements of an array whose elements have no bytes, at the most: nothing else bounds them.
const EMPTY_ELEMENTS_MAX: usize = 256;

/// A value that was read. Numbers of all widths are alike, and so are strings and symbols.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Value {
    Null,
    Bool(bool),
    Unsigned(u64),
    Signed(i64),
    Text(String),
    Binary,
    /// A list, or an array.
    List(Vec<Value>),
    Map(Vec<(Value, Value)>),
    /// A descriptor's code, and what it describes. Names that are not of the protocol have the code
    /// [`NAMED`].
    Described(u64, Box<Value>),
    /// A value of a type that no field of interest has.
    Other,
}

/// The code of all descriptors that are no numbers and no names of the protocol: of extensions,
/// which mean nothing here.
const NAMED: u64 = u64::MAX;
/// Names that a peer may say in the place of codes.
const NAMES: [(&str, u64); 16] = [
    ("amqp:open:list", 0x10),
    ("amqp:begin:list", 0x11),
    ("amqp:attach:list", 0x12),
    ("amqp:flow:list", 0x13),
    ("amqp:disposition:list", 0x15),
    ("amqp:detach:list", 0x16),
    ("amqp:end:list", 0x17),
    ("amqp:close:list", 0x18),
    ("amqp:error:list", 0x1d),
    ("amqp:received:list", 0x23),
    ("amqp:accepted:list", 0x24),
    ("amqp:rejected:list", 0x25),
    ("amqp:released:list", 0x26),
    ("amqp:modified:list", 0x27),
    ("amqp:sasl-mechanisms:list", 0x40),
    ("amqp:sasl-outcome:list", 0x44),
];

/// Bytes that are no value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Malformed;

type Read<T> = Result<T, Malformed>;

/// Reads values from the front of bytes.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn take(&mut self, count: usize) -> Read<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    fn byte(&mut self) -> Read<u8> {
        Ok(self.take(1)?[0])
    }

    /// A number of so many bytes.
    fn unsigned(&mut self, width: usize) -> Read<u64> {
        let bytes = self.take(width)?.iter();
        Ok(bytes.fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    fn size(&mut self, width: usize) -> Read<usize> {
        usize::try_from(self.unsigned(width)?).map_err(|_| Malformed)
    }

    pub(super) fn value(&mut self) -> Read<Value> {
        self.nested(0)
    }

    fn nested(&mut self, depth: usize) -> Read<Value> {
        match self.byte()? {
            0 => self.described(depth),
            code => self.of(code, depth),
        }
    }

    fn described(&mut self, depth: usize) -> Read<Value> {
        let depth = deeper(depth)?;
        let code = match self.nested(depth)? {
            Value::Unsigned(code) => code,
            Value::Text(name) => {
                let named = NAMES.iter().find(|(of, _)| *of == name);
                named.map_or(NAMED, |(_, code)| *code)
            }
            _ => NAMED,
        };
        Ok(Value::Described(code, Box::new(self.nested(depth)?)))
    }

    /// The value whose type has this code.
    fn of(&mut self, code: u8, depth: usize) -> Read<Value> {
        Ok(match code {
            0x40 => Value::Null,
            0x41 => Value::Bool(true),
            0x42 => Value::Bool(false),
            0x56 => Value::Bool(self.byte()? != 0),
            0x43 | 0x44 => Value::Unsigned(0),
            0x50 | 0x52 | 0x53 => Value::Unsigned(self.unsigned(1)?),
            0x60 => Value::Unsigned(self.unsigned(2)?),
            0x70 => Value::Unsigned(self.unsigned(4)?),
            0x80 => Value::Unsigned(self.unsigned(8)?),
            0x51 | 0x54 | 0x55 => Value::Signed(i64::from(self.byte()?.cast_signed())),
            0x71 => {
                let number = u32::try_from(self.unsigned(4)?).map_err(|_| Malformed)?;
                Value::Signed(i64::from(number.cast_signed()))
            }
            0x81 | 0x83 => Value::Signed(self.unsigned(8)?.cast_signed()),
            0xa1 | 0xa3 => self.text(1)?,
            0xb1 | 0xb3 => self.text(4)?,
            0x45 => Value::List(Vec::new()),
            0xc0 => self.list(1, depth)?,
            0xd0 => self.list(4, depth)?,
            0xc1 => self.map(1, depth)?,
            0xd1 => self.map(4, depth)?,
            0xe0 => self.array(1, depth)?,
            0xf0 => self.array(4, depth)?,
            0xa0 => self.binary(1)?,
            0xb0 => self.binary(4)?,
            _ => self.other(code)?,
        })
    }

    /// The high half of a code says how long a value is, so that unknown ones can be passed over.
    fn other(&mut self, code: u8) -> Read<Value> {
        let width = match code >> 4 {
            0x4 => 0,
            0x5 => 1,
            0x6 => 2,
            0x7 => 4,
            0x8 => 8,
            0x9 => 16,
            0xa | 0xc | 0xe => self.size(1)?,
            0xb | 0xd | 0xf => self.size(4)?,
            _ => return Err(Malformed),
        };
        self.take(width)?;
        Ok(Value::Other)
    }

    /// Words of others are shown, and never compared where they are not UTF-8.
    fn text(&mut self, width: usize) -> Read<Value> {
        let size = self.size(width)?;
        let text = String::from_utf8_lossy(self.take(size)?);
        Ok(Value::Text(text.into_owned()))
    }

    fn binary(&mut self, width: usize) -> Read<Value> {
        let size = self.size(width)?;
        self.take(size)?;
        Ok(Value::Binary)
    }

    /// The bytes of a compound value, and the number of its elements.
    fn compound(&mut self, width: usize) -> Read<(Reader<'a>, usize)> {
        let size = self.size(width)?;
        let mut inner = Reader(self.take(size)?);
        let count = inner.size(width)?;
        Ok((inner, count))
    }

    fn list(&mut self, width: usize, depth: usize) -> Read<Value> {
        let depth = deeper(depth)?;
        let (mut inner, count) = self.compound(width)?;
        // Each has a byte at least: the count is bounded by the bytes that are there.
        (0..count)
            .map(|_| inner.nested(depth))
            .collect::<Read<_>>()
            .map(Value::List)
    }

    fn map(&mut self, width: usize, depth: usize) -> Read<Value> {
        let depth = deeper(depth)?;
        let (mut inner, count) = self.compound(width)?;
        (0..count / 2)
            .map(|_| Ok((inner.nested(depth)?, inner.nested(depth)?)))
            .collect::<Read<_>>()
            .map(Value::Map)
    }

    fn array(&mut self, width: usize, depth: usize) -> Read<Value> {
        let depth = deeper(depth)?;
        let (mut inner, count) = self.compound(width)?;
        let code = inner.byte()?;
        // Of described values, or of values without bytes: no field of interest has many.
        if code == 0 || count > inner.0.len() && count > EMPTY_ELEMENTS_MAX {
            return Ok(Value::Other);
        }
        (0..count)
            .map(|_| inner.of(code, depth))
            .collect::<Read<_>>()
            .map(Value::List)
    }
}

fn deeper(depth: usize) -> Read<usize> {
    match depth < DEPTH_MAX {
        true => Ok(depth + 1),
        false => Err(Malformed),
    }
}

/// Appends values.
pub(crate) struct Writer<'a>(pub(crate) &'a mut Vec<u8>);

impl Writer<'_> {
    pub(crate) fn null(&mut self) {
        self.0.push(0x40);
    }

    pub(crate) fn bool(&mut self, value: bool) {
        self.0.push(if value { 0x41 } else { 0x42 });
    }

    pub(crate) fn ubyte(&mut self, value: u8) {
        self.0.extend_from_slice(&[0x50, value]);
    }

    pub(crate) fn ushort(&mut self, value: u16) {
        self.0.push(0x60);
        self.0.extend_from_slice(&value.to_be_bytes());
    }

    pub(crate) fn uint(&mut self, value: u32) {
        match u8::try_from(value) {
            Ok(small) => self.0.extend_from_slice(&[0x52, small]),
            Err(_) => {
                self.0.push(0x70);
                self.0.extend_from_slice(&value.to_be_bytes());
            }
        }
    }

    /// Milliseconds since 1970-01-01 UTC.
    pub(crate) fn timestamp(&mut self, millis: i64) {
        self.0.push(0x83);
        self.0.extend_from_slice(&millis.to_be_bytes());
    }

    pub(crate) fn string(&mut self, text: &str) {
        self.variable([0xa1, 0xb1], text.as_bytes());
    }

    /// ASCII alone may stand in it.
    pub(crate) fn symbol(&mut self, text: &str) {
        self.variable([0xa3, 0xb3], text.as_bytes());
    }

    pub(crate) fn binary(&mut self, bytes: &[u8]) {
        self.variable([0xa0, 0xb0], bytes);
    }

    fn variable(&mut self, [short, long]: [u8; 2], bytes: &[u8]) {
        match u8::try_from(bytes.len()) {
            Ok(size) => self.0.extend_from_slice(&[short, size]),
            Err(_) => {
                self.0.push(long);
                self.length(bytes.len());
            }
        }
        self.0.extend_from_slice(bytes);
    }

    /// No store holds a value whose bytes this number cannot count.
    fn length(&mut self, length: usize) {
        let length = u32::try_from(length).unwrap_or(u32::MAX);
        self.0.extend_from_slice(&length.to_be_bytes());
    }

    /// The descriptor of the value that follows.
    pub(crate) fn descriptor(&mut self, code: u8) {
        self.0.extend_from_slice(&[0, 0x53, code]);
    }

    /// A list of the values that `write` appends.
    pub(crate) fn list(&mut self, write: impl FnOnce(&mut Elements<'_>)) {
        self.compound(0xd0, write);
    }

    /// A map of the names and values that `write` appends in turn.
    pub(crate) fn map(&mut self, write: impl FnOnce(&mut Elements<'_>)) {
        self.compound(0xd1, write);
    }

    fn compound(&mut self, code: u8, write: impl FnOnce(&mut Elements<'_>)) {
        self.0.push(code);
        let start = self.0.len();
        self.0.extend_from_slice(&[0; 8]);
        let mut elements = Elements {
            out: self.0,
            count: 0,
        };
        write(&mut elements);
        let count = elements.count.to_be_bytes();
        let size = u32::try_from(self.0.len() - start - 4).unwrap_or(u32::MAX);
        self.0[start..start + 4].copy_from_slice(&size.to_be_bytes());
        self.0[start + 4..start + 8].copy_from_slice(&count);
    }
}

/// The elements of a list or map.
pub(crate) struct Elements<'a> {
    out: &'a mut Vec<u8>,
    count: u32,
}

impl Elements<'_> {
    /// Appends the one value that is written into the answer.
    pub(crate) fn next(&mut self) -> Writer<'_> {
        self.count += 1;
        Writer(self.out)
    }

    /// Appends so many values that are not given.
    pub(crate) fn nulls(&mut self, count: u32) {
        (0..count).for_each(|_| self.next().null());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Result<Value, Malformed> {
        Reader(bytes).value()
    }

    #[test]
    fn written_values_are_read_again() {
        let long = "x".repeat(300);
        let mut out = Vec::new();
        let mut writer = Writer(&mut out);
        writer.descriptor(0x24);
        writer.list(|list| {
            list.next().bool(true);
            list.next().ubyte(7);
            list.next().ushort(300);
            list.next().uint(3);
            list.next().uint(70_000);
            list.nulls(2);
            list.next().string(&long);
            list.next().symbol("s");
            list.next().binary(&[1, 2]);
            list.next().timestamp(-5);
            list.next().map(|map| {
                map.next().string("k");
                map.next().bool(false);
            });
        });
        let expected = vec![
            Value::Bool(true),
            Value::Unsigned(7),
            Value::Unsigned(300),
            Value::Unsigned(3),
            Value::Unsigned(70_000),
            Value::Null,
            Value::Null,
            Value::Text(long),
            Value::Text("s".to_owned()),
            Value::Binary,
            Value::Signed(-5),
            Value::Map(vec![(Value::Text("k".to_owned()), Value::Bool(false))]),
        ];
        let list = Box::new(Value::List(expected));
        assert_eq!(read(&out), Ok(Value::Described(0x24, list)));
    }

    #[test]
    fn values_of_others_are_read_or_passed_over() {
        let text = |text: &str| Value::Text(text.to_owned());
        for (bytes, expected) in [
            // An array of two symbols, as mechanisms are.
            (
                &b"\xe0\x0a\x02\xa3\x05PLAIN\x01X"[..],
                Value::List(vec![text("PLAIN"), text("X")]),
            ),
            (b"\x71\xff\xff\xff\xfe", Value::Signed(-2)),
            (b"\x82\0\0\0\0\0\0\0\0", Value::Other),
            (b"\x98\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", Value::Other),
            (b"\x45", Value::List(vec![])),
            (
                b"\0\xa3\x03a:b\x40",
                Value::Described(NAMED, Box::new(Value::Null)),
            ),
            (
                b"\0\xa3\x12amqp:accepted:list\x45",
                Value::Described(0x24, Box::new(Value::List(vec![]))),
            ),
            (b"\xa1\x01\xff", text("\u{fffd}")),
        ] {
            assert_eq!(read(bytes), Ok(expected), "{bytes:?}");
        }
    }

    #[test]
    fn bytes_that_are_no_value_are_refused() {
        let deep = [0; 100];
        let lists: Vec<u8> = (0..40).rev().flat_map(|n| [0xc0, n * 3 + 1, 1]).collect();
        for bytes in [
            &b""[..],
            b"\x70\0",
            b"\xa1\x05ab",
            b"\xb1\xff\xff\xff\xff",
            b"\xc0\x01\x05",
            b"\xd0\0\0\0\x04\xff\xff\xff\xff",
            b"\xf0\0\0\0\x05\xff\xff\xff\xff\x70",
            b"\x10",
            &deep,
            &lists,
        ] {
            let found = read(bytes);
            assert!(
                matches!(found, Err(Malformed) | Ok(Value::Other)),
                "{bytes:?}: {found:?}"
            );
        }
    }
}
