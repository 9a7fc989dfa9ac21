//! The text of an output while it comes.

use std::sync::Arc;

use proptest::prelude::*;
use serve::text::{TextStream, Tokenizer};

use crate::folders::{byte_fallback, byte_level, expected, ids};

/// What each push gave, and the end.
fn streamed(tokenizer: &Arc<Tokenizer>, ids: &[u32], skip: bool) -> Vec<String> {
    let mut stream = TextStream::new(tokenizer.clone(), skip);
    let mut texts: Vec<String> = ids.iter().map(|&id| stream.push(id).unwrap()).collect();
    texts.push(stream.finish().unwrap());
    texts
}

#[test]
fn greedy_runs_stream_as_hugging_face_decodes_them() {
    for run in expected()["greedy"]["runs"].as_array().unwrap() {
        let tokens = ids(&run["tokens"]);
        assert_eq!(streamed(&byte_level(), &tokens, false).concat(), run["text"].as_str().unwrap());
        assert_eq!(streamed(&byte_level(), &tokens, true).concat(), run["text_without_special"].as_str().unwrap());
    }
}

#[test]
fn a_character_is_held_back_until_it_is_whole_or_ill_formed() {
    // The byte-level token of a byte that is no printable ASCII is one character of the alphabet.
    let byte = |byte: u8| (0..400).find(|&id| byte_level().token_bytes(id).unwrap() == [byte]).unwrap();
    for (bytes, texts) in [
        (&[0xe4, 0xbb, 0x8a][..], &["", "", "今", ""][..]),
        (&[0xf0, 0x9f, 0x98, 0x80, b'a'], &["", "", "", "😀", "a", ""]),
        (&[0xe4, 0xbb, b'a'], &["", "", "\u{fffd}a", ""]),
        (&[0xe4, 0xe4, 0xbb, 0x8a], &["", "\u{fffd}", "", "今", ""]),
        (&[0x80, 0x80], &["\u{fffd}", "\u{fffd}", ""]),
        (&[0xf0, 0x9f, 0x98], &["", "", "", "\u{fffd}"]),
        (&[0xed, 0xa0, 0x80], &["", "\u{fffd}\u{fffd}", "\u{fffd}", ""]),
    ] {
        let ids: Vec<u32> = bytes.iter().map(|&value| byte(value)).collect();
        assert_eq!(streamed(&byte_level(), &ids, false), texts, "{bytes:x?}");
    }
}

#[test]
fn a_run_of_byte_tokens_is_decoded_as_a_whole() {
    let (e4, bb, x8a, a, space_a) = (3 + 0xe4, 3 + 0xbb, 3 + 0x8a, 260, 263);
    for (ids, texts) in [
        (&[space_a, e4, bb, x8a, a][..], &["a", "", "", "", "今a", ""][..]),
        (&[a, e4, bb, space_a], &["a", "", "", "\u{fffd}\u{fffd} a", ""]),
        (&[space_a, space_a, 1, space_a], &["a", " a", "", " a", ""]),
        (&[e4, bb, x8a], &["", "", "", "今"]),
    ] {
        assert_eq!(streamed(&byte_fallback(None), ids, true), texts, "{ids:?}");
    }
}

#[test]
fn a_long_output_is_its_tokens_text_to_the_end() {
    // Decoding all of it again at each token would take longer than anyone waits.
    let e4_then_80 = [0xe4, 0x80].map(|byte| 3 + byte);
    for (tokenizer, cycle) in
        [(byte_level(), vec![161, 225, 123]), (byte_fallback(None), [&[263, 1, 259][..], &e4_then_80].concat())]
    {
        let ids: Vec<u32> = cycle.iter().copied().cycle().take(200_000).collect();
        assert!(streamed(&tokenizer, &ids, true).concat() == tokenizer.decode(&ids, true).unwrap());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// The parts are the whole, and all that is held back is one unfinished character.
    #[test]
    fn a_byte_level_stream_gives_the_decoded_text_and_holds_back_one_character(
        ids in prop::collection::vec(prop_oneof![0u32..410, 97u32..260], 0..40),
        skip: bool,
    ) {
        let tokenizer = byte_level();
        let mut stream = TextStream::new(tokenizer.clone(), skip);
        let mut text = String::new();
        for end in 1..=ids.len() {
            text.push_str(&stream.push(ids[end - 1]).unwrap());
            let whole = tokenizer.decode(&ids[..end], skip).unwrap();
            prop_assert!(whole == text || whole == format!("{text}\u{fffd}"), "{whole:?} {text:?}");
        }
        text.push_str(&stream.finish().unwrap());
        prop_assert_eq!(text, tokenizer.decode(&ids, skip).unwrap());
    }

    /// The same of tokens of one byte among others: what is given is never taken back.
    #[test]
    fn a_byte_fallback_stream_gives_the_decoded_text(
        ids in prop::collection::vec(prop_oneof![0u32..3, 3u32..259, 190u32..259, 259u32..268], 0..40),
        skip: bool,
    ) {
        let tokenizer = byte_fallback(None);
        prop_assert_eq!(streamed(&tokenizer, &ids, skip).concat(), tokenizer.decode(&ids, skip).unwrap());
    }

    /// Every text of any language comes through whole.
    #[test]
    fn an_encoded_text_streams_as_itself(text in "\\PC*") {
        let ids = byte_level().encode(&text, false).unwrap();
        prop_assert_eq!(streamed(&byte_level(), &ids, false).concat(), text);
    }
}
