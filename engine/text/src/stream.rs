//! The text of one output, while its tokens come.

use std::sync::Arc;

use super::byte_level;
use super::error::TextError;
use super::tokenizer::{Decoding, Tokenizer, fallback_byte};

/// Turns ids into text one by one.
///
/// **Law:** what [`push`](Self::push) and [`finish`](Self::finish) return is, together, what [`Tokenizer::decode`] says
/// of all ids, for byte-level tokenizers and for those that spell unknown characters as tokens of one byte. A push
/// costs the same however long the output is.
#[derive(Debug)]
pub struct TextStream {
    tokenizer: Arc<Tokenizer>,
    skip_special_tokens: bool,
    state: State,
}

#[derive(Debug)]
enum State {
    Bytes {
        /// The beginning of a character, at most three bytes.
        held: Vec<u8>,
    },
    Pieces {
        /// Tokens whose text was given, and that text when they stand alone. They tell the decoder that what follows
        /// does not begin the output.
        before: Vec<u32>,
        before_text: String,
        /// Tokens whose text depends on what follows.
        held: Vec<u32>,
    },
}

impl TextStream {
    /// A stream without a token.
    pub fn new(tokenizer: Arc<Tokenizer>, skip_special_tokens: bool) -> Self {
        let state = match tokenizer.decoding() {
            Decoding::Bytes => State::Bytes { held: Vec::new() },
            Decoding::Pieces => State::Pieces { before: Vec::new(), before_text: String::new(), held: Vec::new() },
        };
        Self { tokenizer, skip_special_tokens, state }
    }

    /// Adds a token and returns the text that no later token can change. It is empty while a character is incomplete.
    pub fn push(&mut self, id: u32) -> Result<String, TextError> {
        let Some(piece) = self.tokenizer.piece(id, self.skip_special_tokens) else { return Ok(String::new()) };
        match &mut self.state {
            State::Bytes { held } => {
                held.extend(byte_level::token_bytes(&piece));
                let certain = held.len() - incomplete(held);
                Ok(lossy(held.drain(..certain)))
            }
            State::Pieces { held, .. } => {
                held.push(id);
                // A run of such tokens is decoded as a whole: one ill-formed character spoils all of it.
                if fallback_byte(&piece).is_some() { Ok(String::new()) } else { self.release() }
            }
        }
    }

    /// The text that was held back, now that no token follows.
    pub fn finish(&mut self) -> Result<String, TextError> {
        match &mut self.state {
            State::Bytes { held } => Ok(lossy(held.drain(..))),
            State::Pieces { .. } => self.release(),
        }
    }

    /// The text of the held tokens behind those before them.
    fn release(&mut self) -> Result<String, TextError> {
        let State::Pieces { before, before_text, held } = &mut self.state else { return Ok(String::new()) };
        let decode = |ids: &[u32]| self.tokenizer.decode(ids, self.skip_special_tokens);
        let all = [before.as_slice(), held.as_slice()].concat();
        let (text, alone) = (decode(&all)?, decode(held)?);
        let new = text.get(before_text.len()..).unwrap_or_default().to_owned();
        (*before, *before_text) = (std::mem::take(held), alone);
        Ok(new)
    }
}

/// How many bytes at the end begin a character that further bytes may complete.
fn incomplete(bytes: &[u8]) -> usize {
    let last = bytes.utf8_chunks().last().map_or(&[][..], |chunk| chunk.invalid());
    // Of ill-formed bytes by themselves UTF-8 says whether they only lack their end.
    match std::str::from_utf8(last) {
        Err(error) if error.error_len().is_none() => last.len(),
        _ => 0,
    }
}

fn lossy(bytes: impl Iterator<Item = u8>) -> String {
    String::from_utf8_lossy(&bytes.collect::<Vec<u8>>()).into_owned()
}
