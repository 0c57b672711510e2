//! Headers as the table holds them: a JSON array of name, value, name, value, ... where a value may
//! be null.

use posthaste_engine::StoredEvent;

/// Reads the array. None when it is not an array of texts and nulls, which the table's checks
/// refuse.
///
/// An escape that names half a surrogate pair (JavaScript writes them for damaged strings) has no
/// UTF-8 form; it becomes U+FFFD, as it would in JavaScript's own encoder.
pub(crate) fn parse(json: &str) -> Option<Vec<Option<String>>> {
    let mut reader = Reader { rest: json };
    reader.expect('[')?;
    let mut texts = Vec::new();
    if reader.take(']') {
        return reader.is_at_end().then_some(texts);
    }
    loop {
        reader.skip_space();
        if let Some(rest) = reader.rest.strip_prefix("null") {
            reader.rest = rest;
            texts.push(None);
        } else {
            texts.push(Some(reader.text()?));
        }
        if reader.take(']') {
            return reader.is_at_end().then_some(texts);
        }
        reader.expect(',')?;
    }
}

/// Name and value pairs of a parsed array. None when a name is absent or the last value is missing.
pub(crate) fn pairs(texts: &[Option<String>]) -> Option<Vec<(&str, Option<&str>)>> {
    if !texts.len().is_multiple_of(2) {
        return None;
    }
    texts
        .chunks_exact(2)
        .map(|pair| Some((pair[0].as_deref()?, pair[1].as_deref())))
        .collect()
}

/// An event's headers as the table holds them.
pub(crate) fn to_json(event: &StoredEvent) -> String {
    let mut json = String::from("[");
    for (name, value) in event.headers() {
        if json.len() > 1 {
            json.push(',');
        }
        push_text(&mut json, name);
        json.push(',');
        match value {
            Some(value) => push_text(&mut json, value),
            None => json.push_str("null"),
        }
    }
    json.push(']');
    json
}

fn push_text(json: &mut String, text: &str) {
    json.push('"');
    for c in text.chars() {
        match c {
            '"' => json.push_str("\\\""),
            '\\' => json.push_str("\\\\"),
            c if c < ' ' => json.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => json.push(c),
        }
    }
    json.push('"');
}

struct Reader<'a> {
    rest: &'a str,
}

impl Reader<'_> {
    fn skip_space(&mut self) {
        self.rest = self.rest.trim_start_matches([' ', '\t', '\n', '\r']);
    }

    fn take(&mut self, c: char) -> bool {
        self.skip_space();
        match self.rest.strip_prefix(c) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, c: char) -> Option<()> {
        self.take(c).then_some(())
    }

    fn is_at_end(&mut self) -> bool {
        self.skip_space();
        self.rest.is_empty()
    }

    fn text(&mut self) -> Option<String> {
        self.expect('"')?;
        let mut text = String::new();
        loop {
            let stop = self.rest.find(['"', '\\'])?;
            text.push_str(&self.rest[..stop]);
            let escape = self.rest[stop..].starts_with('\\');
            self.rest = &self.rest[stop + 1..];
            if !escape {
                return Some(text);
            }
            text.push(self.escape()?);
        }
    }

    fn escape(&mut self) -> Option<char> {
        let c = self.rest.chars().next()?;
        self.rest = &self.rest[c.len_utf8()..];
        match c {
            '"' | '\\' | '/' => Some(c),
            'b' => Some('\u{8}'),
            'f' => Some('\u{c}'),
            'n' => Some('\n'),
            'r' => Some('\r'),
            't' => Some('\t'),
            'u' => {
                let unit = self.hex()?;
                if (0xd800..0xdc00).contains(&unit) {
                    return Some(self.low_surrogate(unit));
                }
                Some(char::from_u32(unit).unwrap_or(char::REPLACEMENT_CHARACTER))
            }
            _ => None,
        }
    }

    /// The character whose first half was `high`; the rest stays when it does not begin with the
    /// second half.
    fn low_surrogate(&mut self, high: u32) -> char {
        let mark = self.rest;
        if let Some(rest) = self.rest.strip_prefix("\\u") {
            self.rest = rest;
            if let Some(low) = self.hex().filter(|low| (0xdc00..0xe000).contains(low)) {
                let point = 0x1_0000 + ((high - 0xd800) << 10) + (low - 0xdc00);
                return char::from_u32(point).unwrap_or(char::REPLACEMENT_CHARACTER);
            }
        }
        self.rest = mark;
        char::REPLACEMENT_CHARACTER
    }

    fn hex(&mut self) -> Option<u32> {
        let digits = self.rest.get(..4)?;
        let unit = digits
            .chars()
            .try_fold(0, |unit, c| Some(unit * 16 + c.to_digit(16)?))?;
        self.rest = &self.rest[4..];
        Some(unit)
    }
}

#[cfg(test)]
mod tests {
    use posthaste_engine::{PageBuilder, StoredFields};

    use super::*;

    fn texts(json: &str) -> Option<Vec<Option<String>>> {
        parse(json)
    }

    #[test]
    fn every_form_of_json_is_read() {
        assert_eq!(texts("[]"), Some(vec![]));
        assert_eq!(texts(" [ ] "), Some(vec![]));
        assert_eq!(
            texts("[ \"a\" ,\n null,\"\",\"\\\"\\\\\\/\\b\\f\\n\\r\\t\" ]"),
            Some(vec![
                Some("a".into()),
                None,
                Some(String::new()),
                Some("\"\\/\u{8}\u{c}\n\r\t".into()),
            ])
        );
        assert_eq!(
            texts(r#"["\u0041\u00e9\ud83d\ude9a","🚚"]"#),
            Some(vec![Some("Aé🚚".into()), Some("🚚".into())])
        );
    }

    #[test]
    fn half_a_surrogate_pair_becomes_the_replacement_character() {
        for (json, text) in [
            (r#"["\ud83d"]"#, "\u{fffd}"),
            (r#"["\ude9a!"]"#, "\u{fffd}!"),
            (r#"["\ud83d\u0041"]"#, "\u{fffd}A"),
            (r#"["\ud83d\n"]"#, "\u{fffd}\n"),
        ] {
            assert_eq!(texts(json), Some(vec![Some(text.to_owned())]), "{json}");
        }
    }

    #[test]
    fn anything_else_is_refused() {
        for json in [
            "",
            "[",
            "{}",
            "null",
            "[1]",
            "[\"a\",]",
            "[\"a\" \"b\"]",
            "[\"a\"] x",
            "[\"\\x\"]",
            "[\"\\u12\"]",
            "[\"\\u+123\"]",
            "[\"a",
            "[[\"a\"]]",
        ] {
            assert_eq!(texts(json), None, "{json}");
        }
        assert_eq!(pairs(&[None, None]), None);
        assert_eq!(pairs(&[Some("a".into())]), None);
    }

    #[test]
    fn what_is_written_is_read_again() {
        let headers = [
            ("a", Some("\"quoted\" \\ \u{1}\n")),
            ("a", None),
            ("", Some("🚚")),
        ];
        let mut page = PageBuilder::default();
        page.push(
            &StoredFields {
                seq: 1,
                id: uuid::Uuid::nil(),
                occurred_at: 0,
                inserted_at: 0,
                slot: 0,
                texts: [None; 9],
                payload: None,
            },
            headers.into_iter(),
        )
        .unwrap();
        let event = page.finish().remove(0);
        let texts = parse(&to_json(&event)).unwrap();
        assert_eq!(pairs(&texts).unwrap(), headers);
    }
}
