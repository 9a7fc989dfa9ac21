//! The alphabet of byte-level BPE: one printable character for each byte, as GPT-2 introduced it.

/// The bytes of a token of a byte-level tokenizer. A token with a character that is not of the alphabet was added as
/// plain text, and its bytes are those of the text.
pub(super) fn token_bytes(token: &str) -> Vec<u8> {
    token.chars().map(byte).collect::<Option<Vec<u8>>>().unwrap_or_else(|| token.as_bytes().to_vec())
}

/// The byte that a character stands for. Printable bytes stand for themselves; the others, in order, for the
/// characters from U+0100 on.
fn byte(character: char) -> Option<u8> {
    let code = u32::from(character);
    let byte = match code {
        0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff => code,
        0x100..=0x120 => code - 0x100,
        0x121..=0x142 => code - 0x121 + 0x7f,
        0x143 => 0xad,
        _ => return None,
    };
    u8::try_from(byte).ok()
}
