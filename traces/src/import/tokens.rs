//! Token counts of texts by a user's `tokenizer.json`.

use std::path::{Path, PathBuf};

use tokenizers::Tokenizer;

use crate::error::TracesError;

/// A tokenizer that only counts.
#[derive(Debug)]
pub struct TokenCounter {
    path: PathBuf,
    tokenizer: Tokenizer,
}

impl TokenCounter {
    /// Reads a `tokenizer.json` of Hugging Face's `tokenizers`.
    pub fn read(path: &Path) -> Result<Self, TracesError> {
        let bytes = std::fs::read(path).map_err(|source| TracesError::Io { path: path.into(), source })?;
        let error = |problem: String| TracesError::Tokenizer { path: path.into(), problem };
        let mut tokenizer = Tokenizer::from_bytes(bytes)
            .map_err(|source| error(format!("must be a tokenizer.json of Hugging Face's tokenizers: {source}")))?;
        // A file may carry the settings of a training run, which would cut or fill every text to one length.
        tokenizer.with_padding(None).with_truncation(None).map_err(|source| error(source.to_string()))?;
        Ok(Self { path: path.into(), tokenizer })
    }

    /// How many tokens each text has, without special tokens; on all cores.
    pub fn count(&self, texts: Vec<&str>) -> Result<Vec<u64>, TracesError> {
        let encodings = self
            .tokenizer
            .encode_batch_fast(texts, false)
            .map_err(|source| TracesError::Tokenizer { path: self.path.clone(), problem: source.to_string() })?;
        Ok(encodings.iter().map(|encoding| encoding.len() as u64).collect())
    }
}
