//! One answer in the making: tokens become text, stop strings end it, log-probabilities go along.

use std::sync::Arc;

use engine::batch::Scored;
use engine::submission::Logprobs;

use super::wanted::Wanted;
use super::wire::FinishReason;
use crate::router::{Last, Token};
use crate::text::{StopStrings, TextError, TextStream, Tokenizer};

/// A prompt as it was read.
#[derive(Clone, Debug)]
pub(super) struct ReadPrompt {
    pub(super) ids: Arc<[u32]>,
    /// Its text, for `echo`.
    pub(super) text: String,
}

/// What a token adds to its answer.
#[derive(Clone, Debug, Default)]
pub(super) struct Piece {
    /// Empty while a character or a stop string may go on.
    pub(super) text: String,
    pub(super) finish: Option<FinishReason>,
    /// The token's, and those of an echoed prompt before it.
    pub(super) logprobs: Vec<TokenLogprob>,
}

/// How probable a token was.
#[derive(Clone, Debug)]
pub(super) struct TokenLogprob {
    pub(super) token: NamedToken,
    /// `None` for the first token of a prompt, before which there is nothing.
    pub(super) logprob: Option<f64>,
    /// The most probable ones, largest first.
    pub(super) top: Vec<(NamedToken, f64)>,
    /// Characters of the answer before it.
    pub(super) offset: usize,
}

/// A token as text, and as the bytes behind it.
#[derive(Clone, Debug)]
pub(super) struct NamedToken {
    pub(super) text: String,
    pub(super) bytes: Vec<u8>,
}

/// One answer.
#[derive(Debug)]
pub(super) struct Choice {
    tokenizer: Arc<Tokenizer>,
    stream: TextStream,
    stops: StopStrings,
    min_tokens: usize,
    /// Of an echoed prompt that has not been given yet.
    echo: Option<ReadPrompt>,
    logprobs: Option<Logprobs>,
    prompt_scores: Vec<Scored>,
    /// Characters given so far.
    offset: usize,
    /// The depth of every token so far.
    pub(super) depths: Vec<u8>,
}

impl Choice {
    pub(super) fn new(tokenizer: &Arc<Tokenizer>, wanted: &Wanted, prompt: &ReadPrompt) -> Self {
        Self {
            tokenizer: tokenizer.clone(),
            stream: TextStream::new(tokenizer.clone(), true),
            stops: StopStrings::new(wanted.stops.iter().cloned()),
            min_tokens: wanted.min_tokens as usize,
            echo: wanted.echo.then(|| prompt.clone()),
            logprobs: wanted.logprobs,
            prompt_scores: Vec::new(),
            offset: 0,
            depths: Vec::new(),
        }
    }

    /// Log-probabilities go along.
    pub(super) fn is_scored(&self) -> bool {
        self.logprobs.is_some()
    }

    /// Takes in how probable the prompt's next token was.
    pub(super) fn prompt_score(&mut self, scored: Scored) {
        self.prompt_scores.push(scored);
    }

    /// Takes in a token.
    pub(super) fn token(&mut self, token: Token) -> Result<Piece, TextError> {
        let mut piece = Piece::default();
        if let Some(prompt) = self.echo.take() {
            piece.logprobs = self.prompt_logprobs(&prompt)?;
            self.offset = prompt.text.chars().count();
            piece.text = prompt.text;
        }
        if self.logprobs.is_some() {
            piece.logprobs.extend(token.score.map(|score| self.logprob(&score, self.offset)).transpose()?);
        }
        self.depths.push(token.depth.0);
        // An end token is no part of the answer, whatever its text is.
        let mut new = if token.last == Some(Last::Stop) { String::new() } else { self.stream.push(token.id)? };
        if token.last.is_some() {
            new += &self.stream.finish()?;
        }
        let mut text = if self.depths.len() < self.min_tokens { new } else { self.stops.push(&new) };
        if token.last.is_some() {
            text += &self.stops.finish();
        }
        piece.finish = match token.last {
            _ if self.stops.stopped() => Some(FinishReason::Stop),
            Some(Last::Stop) => Some(FinishReason::Stop),
            Some(Last::Length) => Some(FinishReason::Length),
            None => None,
        };
        self.offset += text.chars().count();
        piece.text += &text;
        Ok(piece)
    }

    /// Every token of an echoed prompt.
    fn prompt_logprobs(&mut self, prompt: &ReadPrompt) -> Result<Vec<TokenLogprob>, TextError> {
        if self.logprobs.is_none() {
            return Ok(Vec::new());
        }
        let mut scores = std::mem::take(&mut self.prompt_scores).into_iter();
        let mut offset = 0;
        let mut all = Vec::with_capacity(prompt.ids.len());
        for (position, &id) in prompt.ids.iter().enumerate() {
            let token = self.named(id)?;
            let length = token.text.chars().count();
            // Nothing precedes the first token, so it has no score.
            let score = if position == 0 { None } else { scores.next() };
            all.push(match score {
                Some(score) => self.logprob(&score, offset)?,
                None => TokenLogprob { token, logprob: None, top: Vec::new(), offset },
            });
            offset += length;
        }
        Ok(all)
    }

    fn logprob(&self, score: &Scored, offset: usize) -> Result<TokenLogprob, TextError> {
        // From the same f32 to the same f64, so that the most probable token is found by equality.
        let top = score.top.iter().map(|&(id, logprob)| Ok((self.named(id)?, f64::from(logprob))));
        Ok(TokenLogprob {
            token: self.named(score.id)?,
            logprob: Some(f64::from(score.logprob)),
            top: top.collect::<Result<_, TextError>>()?,
            offset,
        })
    }

    fn named(&self, id: u32) -> Result<NamedToken, TextError> {
        Ok(NamedToken { text: self.tokenizer.token_text(id)?, bytes: self.tokenizer.token_bytes(id)? })
    }
}
