//! What a submission may ask of a model, checked before anything is kept of it.

use super::backend::Banned;
use crate::executor::Reject;
use crate::submission::{Ends, Logprobs, Submission};

/// Checks everything but how tokens are chosen and when they leave.
///
/// # Errors
/// The first thing that cannot be served.
pub(super) fn check(submission: &Submission, vocab: u32) -> Result<(), Reject> {
    if let Some(prompt) = &submission.prompt {
        let (expected, found) = (submission.arrival.request.prompt_tokens, prompt.len());
        if found != expected as usize {
            return Err(Reject::PromptLength { expected, found });
        }
        if let Some(&token) = prompt.iter().find(|&&token| token >= vocab) {
            return Err(Reject::Vocabulary { token, vocab });
        }
    }
    submission.ends.as_ref().map_or(Ok(()), |ends| check_ends(ends, vocab))?;
    match submission.logprobs {
        Some(Logprobs { top, .. }) if top > Logprobs::TOP_MAX => Err(Reject::Logprobs(format!(
            "the log-probabilities of at most {} tokens can be told, got {top}",
            Logprobs::TOP_MAX
        ))),
        _ => Ok(()),
    }
}

fn check_ends(ends: &Ends, vocab: u32) -> Result<(), Reject> {
    let Ends { tokens, min_tokens } = ends;
    if let Some(token) = tokens.iter().find(|&&token| token >= vocab) {
        return Err(Reject::Ends(format!("token {token} is to end it, the vocabulary has {vocab}")));
    }
    // Something must be left to be chosen.
    let held_back_max = Banned::MAX.min(vocab as usize - 1);
    if *min_tokens > 0 && tokens.len() > held_back_max {
        return Err(Reject::Ends(format!(
            "until min_tokens = {min_tokens} at most {held_back_max} end tokens can be held back, got {}",
            tokens.len()
        )));
    }
    Ok(())
}
