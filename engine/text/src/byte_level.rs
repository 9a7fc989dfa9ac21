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

/// The character that stands for a byte.
pub(super) fn character(byte: u8) -> char {
    let code = u32::from(byte);
    let code = match code {
        0x00..=0x20 => code + 0x100,
        0x7f..=0xa0 => code - 0x7f + 0x121,
        0xad => 0x143,
        _ => code,
    };
    char::from_u32(code).expect("all of them are letters")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_a_character_of_its_own() {
        for value in 0..=u8::MAX {
            assert_eq!(byte(character(value)), Some(value));
        }
    }
}
