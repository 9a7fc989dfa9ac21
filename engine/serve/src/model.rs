//! The model that is served, as requests see it.

use std::path::Path;
use std::sync::Arc;

use engine::submission::Sampling;
use engine::units::Depth;

use crate::text::{Chat, TextError, Tokenizer};

/// A model and what it says of itself.
#[derive(Debug)]
pub struct ServedModel {
    /// The name by which clients ask for it.
    pub name: String,
    /// Text to ids and back.
    pub tokenizer: Arc<Tokenizer>,
    /// Conversations to prompts.
    pub chat: Chat,
    /// Token ids that it has embeddings for.
    pub vocab: u32,
    /// Prompt and output together at most.
    pub context_tokens: u32,
    /// Tokens that end an answer.
    pub end_tokens: Arc<[u32]>,
    /// How tokens are chosen where a request does not say; the seed is the request's.
    pub sampling: Sampling,
    /// The exit threshold where a request says only from which depth.
    pub exit_threshold: f32,
    /// The first loop after which the scheduler lets tokens leave.
    pub first_exit: Depth,
    /// The scheduler has no early exits.
    pub full_depth_only: bool,
}

impl ServedModel {
    /// Opens a folder's tokenizer and chat template.
    ///
    /// # Errors
    /// One of them cannot be read, or the tokenizer has ids that the model has not.
    pub fn text(folder: &Path, vocab: u64) -> Result<(Arc<Tokenizer>, Chat), TextError> {
        let tokenizer = Arc::new(Tokenizer::open(folder, vocab)?);
        let chat = Chat::new(tokenizer.clone())?;
        Ok((tokenizer, chat))
    }
}
