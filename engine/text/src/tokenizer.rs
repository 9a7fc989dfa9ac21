//! A model folder's tokenizer.

use std::path::Path;

use tokenizers::decoders::DecoderWrapper;

use super::byte_level;
use super::config::{TokenSpec, TokenizerConfig};
use super::error::TextError;

/// Texts to ids and back, as Hugging Face's tokenizers do it with the same folder.
///
/// Nothing changes after [`open`](Self::open), so that it can be shared between threads.
#[derive(Debug)]
pub struct Tokenizer {
    /// Finds special tokens in a text.
    tokenizer: tokenizers::Tokenizer,
    /// The same, for texts in which special tokens are text.
    text_only: tokenizers::Tokenizer,
    bos: Option<NamedToken>,
    eos: Option<NamedToken>,
    pad: Option<NamedToken>,
    add_bos: bool,
    chat_template: Option<String>,
}

/// A special token that has a role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedToken {
    /// Its id.
    pub id: u32,
    /// Its text.
    pub text: String,
}

/// How ids become text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decoding {
    /// Each token is a string of bytes, and the text is what they make together, read as UTF-8.
    Bytes,
    /// Otherwise: the text of a token depends on its neighbours, and the tokenizer's own decoder says how.
    Pieces,
}

impl Tokenizer {
    /// Reads `tokenizer.json` and, where they are there, `tokenizer_config.json` and `chat_template.jinja`.
    ///
    /// `vocab` is how many ids the model has embeddings for. A tokenizer with an id beyond them is an error; one with
    /// fewer ids is not, since embeddings are often padded.
    pub fn open(folder: &Path, vocab: u64) -> Result<Self, TextError> {
        let path = folder.join("tokenizer.json");
        let error = |problem: String| TextError::File { path: path.clone(), problem };
        let bytes = std::fs::read(&path).map_err(|source| TextError::Io { path: path.clone(), source })?;
        let mut tokenizer = tokenizers::Tokenizer::from_bytes(bytes)
            .map_err(|source| error(format!("must be a tokenizer.json of Hugging Face's tokenizers: {source}")))?;
        // A file may carry the settings of a training run, which would cut or fill every text to one length.
        tokenizer.with_padding(None).with_truncation(None).map_err(|source| error(source.to_string()))?;

        let config = TokenizerConfig::read(folder)?;
        // A token that only the configuration calls special is added, as Hugging Face's code does.
        let known = tokenizer.get_added_vocabulary().get_vocab();
        let missing: Vec<_> = config
            .special_tokens()
            .filter(|token| !known.contains_key(token.text()))
            .map(TokenSpec::to_added_token)
            .collect();
        tokenizer.add_special_tokens(missing).map_err(|source| error(source.to_string()))?;

        let largest = tokenizer.get_vocab(true).into_values().max().unwrap_or_default();
        if u64::from(largest) >= vocab {
            return Err(TextError::Vocabulary { path, largest, vocab });
        }

        let named = |spec: &Option<TokenSpec>| {
            let text = spec.as_ref()?.text();
            Some(NamedToken { id: tokenizer.token_to_id(text)?, text: text.to_owned() })
        };
        let mut text_only = tokenizer.clone();
        text_only.set_encode_special_tokens(true);
        Ok(Self {
            text_only,
            bos: named(&config.bos_token),
            eos: named(&config.eos_token),
            pad: named(&config.pad_token),
            add_bos: config.add_bos_token == Some(true),
            chat_template: config.chat_template(folder)?,
            tokenizer,
        })
    }

    /// The ids of a text. A special token's text becomes its id.
    ///
    /// With `add_special_tokens` the ids also hold what the tokenizer puts around a text; where the configuration says
    /// `add_bos_token: true`, they begin with the BOS token even if `tokenizer.json` does not put it there.
    pub fn encode(&self, text: &str, add_special_tokens: bool) -> Result<Vec<u32>, TextError> {
        let encoding = self.tokenizer.encode_fast(text, add_special_tokens).map_err(encode_error)?;
        let mut ids = encoding.get_ids().to_vec();
        if let Some(bos) = &self.bos
            && self.add_bos
            && add_special_tokens
            && ids.first() != Some(&bos.id)
        {
            ids.insert(0, bos.id);
        }
        Ok(ids)
    }

    /// The text of ids. Bytes that are not UTF-8 become U+FFFD; an id without a token has no text. Spaces before
    /// punctuation stay, whatever `clean_up_tokenization_spaces` says, since a stream could not take them back.
    pub fn decode(&self, ids: &[u32], skip_special_tokens: bool) -> Result<String, TextError> {
        self.tokenizer.decode(ids, skip_special_tokens).map_err(|source| TextError::Decode(source.to_string()))
    }

    /// The text of one token by itself, as log probabilities name it: its leading space is kept, and a part of a
    /// character is U+FFFD. An id without a token has no text.
    pub fn token_text(&self, id: u32) -> Result<String, TextError> {
        Ok(String::from_utf8_lossy(&self.token_bytes(id)?).into_owned())
    }

    /// The bytes of one token, which may be a part of a character. An id without a token has none.
    pub fn token_bytes(&self, id: u32) -> Result<Vec<u8>, TextError> {
        let Some(piece) = self.piece(id, false) else { return Ok(Vec::new()) };
        match self.decoding() {
            Decoding::Bytes => Ok(byte_level::token_bytes(&piece)),
            Decoding::Pieces => {
                if let Some(byte) = fallback_byte(&piece) {
                    return Ok(vec![byte]);
                }
                // The first token of a text may lose its leading space, the second does not.
                let (one, two) = (self.decode(&[id], false)?, self.decode(&[id, id], false)?);
                Ok(two.strip_prefix(&one).unwrap_or(&one).as_bytes().to_vec())
            }
        }
    }

    /// The token that begins a text, if the configuration names one.
    pub fn bos(&self) -> Option<&NamedToken> {
        self.bos.as_ref()
    }

    /// The token that ends a text, if the configuration names one.
    pub fn eos(&self) -> Option<&NamedToken> {
        self.eos.as_ref()
    }

    /// The token that fills a batch, if the configuration names one.
    pub fn pad(&self) -> Option<&NamedToken> {
        self.pad.as_ref()
    }

    /// How many tokens there are, special and added ones included. The model may have embeddings for more ids.
    pub fn vocab_size(&self) -> usize {
        self.tokenizer.get_vocab_size(true)
    }

    /// The source of the chat template.
    pub fn chat_template(&self) -> Option<&str> {
        self.chat_template.as_deref()
    }

    /// The ids of a text in which special tokens are text, with nothing around them.
    pub(super) fn encode_as_text(&self, text: &str) -> Result<Vec<u32>, TextError> {
        let encoding = self.text_only.encode_fast(text, false).map_err(encode_error)?;
        Ok(encoding.get_ids().to_vec())
    }

    /// The ids of a text with the bytes of it that each stands for. A special token's text becomes its id.
    pub(super) fn encode_with_places(&self, text: &str) -> Result<tokenizers::Encoding, TextError> {
        self.tokenizer.encode(text, false).map_err(encode_error)
    }

    /// A special token's text.
    pub(super) fn special_token(&self, id: u32) -> Option<&str> {
        let added = self.tokenizer.get_added_vocabulary().get_added_tokens_decoder();
        added.get(&id).filter(|token| token.special).map(|token| token.content.as_str())
    }

    /// All special tokens' texts, by id.
    pub(super) fn special_tokens(&self) -> Vec<String> {
        let added = self.tokenizer.get_added_vocabulary().get_added_tokens_decoder();
        let mut ids: Vec<u32> = added.keys().copied().collect();
        ids.sort_unstable();
        ids.into_iter().filter_map(|id| self.special_token(id)).map(str::to_owned).collect()
    }

    /// A token as the vocabulary spells it, if it has a part in a text.
    pub(super) fn piece(&self, id: u32, skip_special_tokens: bool) -> Option<String> {
        let added = self.tokenizer.get_added_vocabulary();
        self.tokenizer.id_to_token(id).filter(|piece| !skip_special_tokens || !added.is_special_token(piece))
    }

    pub(super) fn decoding(&self) -> Decoding {
        match self.tokenizer.get_decoder() {
            Some(DecoderWrapper::ByteLevel(_)) => Decoding::Bytes,
            _ => Decoding::Pieces,
        }
    }
}

/// The byte of a token like `<0xE4>`, with which some tokenizers spell what their vocabulary lacks.
pub(super) fn fallback_byte(piece: &str) -> Option<u8> {
    let digits = piece.strip_prefix("<0x")?.strip_suffix('>')?;
    (digits.len() == 2).then(|| u8::from_str_radix(digits, 16).ok())?
}

fn encode_error(source: tokenizers::Error) -> TextError {
    TextError::Encode(source.to_string())
}
