//! Percent-encoding, as the parts of a store's address are written.

/// Decodes a part. None when a `%` does not begin two hexadecimal digits, or the bytes are no
/// UTF-8.
pub(crate) fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let (&[high, low], tail) = rest.split_first_chunk()?;
        // Not `from_str_radix`, which takes a sign.
        let digit = |digit: u8| char::from(digit).to_digit(16);
        bytes.push(u8::try_from(digit(high)? * 16 + digit(low)?).ok()?);
        rest = tail;
    }
    String::from_utf8(bytes).ok()
}
