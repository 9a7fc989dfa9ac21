//! What is known on the host of each request: its ids by position, and how its tokens are chosen.

use std::sync::Arc;

use super::backend::Banned;
use super::exits::Decider;
use super::transcripts::Transcripts;
use crate::content::{Piece, Text, whole_prompt};
use crate::executor::Reject;
use crate::models::counter::{Stream, below, draw};
use crate::request::{Request, RequestId};
use crate::submission::{Ends, Logprobs, Sampling, Submission};

/// A request from its submission until it is forgotten.
#[derive(Debug)]
pub(super) struct Sequence {
    /// Given with the submission, until it is admitted.
    pub(super) prompt: Option<Arc<[u32]>>,
    /// Input ids by position: the prompt, and behind it what was chosen last for each.
    ids: Vec<u32>,
    /// With the request's own seed.
    pub(super) sampling: Sampling,
    pub(super) decider: Decider,
    pub(super) prompt_tokens: u32,
    /// The true output length, which the scheduler does not know.
    output_tokens: u32,
    /// Its own, in place of the run's.
    ends: Option<Ends>,
    pub(super) logprobs: Option<Logprobs>,
    /// Positions whose prompt has been prefilled: what it says of the next ones was asked for, and is not asked for again
    /// when the prompt is recomputed.
    pub(super) prefilled: u32,
    /// The epoch of its last launched row: outcomes of an older one are ignored.
    pub(super) epoch: u32,
    /// Its last token was made, or it failed (`finish: eos`); what still runs for it runs late.
    pub(super) ended: bool,
}

impl Sequence {
    pub(super) fn new(submission: &Submission, sampling: Sampling, decider: Decider) -> Self {
        let Submission { arrival, prompt, ends, logprobs, .. } = submission;
        Self {
            prompt: prompt.clone(),
            ids: Vec::new(),
            sampling,
            decider,
            prompt_tokens: arrival.request.prompt_tokens,
            output_tokens: arrival.output_tokens,
            ends: ends.clone(),
            logprobs: *logprobs,
            prefilled: 0,
            epoch: 0,
            ended: false,
        }
    }

    /// Whether output token number `token` is its last, where the run has these end tokens.
    pub(super) fn ends_with(&self, token: u32, id: u32, of_run: &[u32]) -> bool {
        match (&self.ends, of_run) {
            (Some(ends), _) => ends.tokens.contains(&id),
            (None, []) => token + 1 == self.output_tokens,
            (None, of_run) => of_run.contains(&id),
        }
    }

    /// The ids that output token number `token` cannot have.
    pub(super) fn banned(&self, token: u32) -> Banned {
        let early = self.ends.as_ref().filter(|ends| token < ends.min_tokens);
        early.map_or_else(Banned::default, |ends| Banned::new(&ends.tokens).expect("no more were let in"))
    }

    /// Fetches the prompt when the request first gets a slot, or makes it up; true if it was the first time.
    pub(super) fn admit(&mut self, request: &Request, prompt_seed: u64, vocab: u32) -> bool {
        if !self.ids.is_empty() {
            return false;
        }
        self.ids = match self.prompt.take() {
            Some(prompt) => prompt.to_vec(),
            None => random_prompt(prompt_seed, request, vocab),
        };
        true
    }

    /// The known ids, by position.
    pub(super) fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// Learns which token was chosen as the input of `position`.
    pub(super) fn learn(&mut self, position: u32, id: u32) {
        let position = position as usize;
        assert!(position <= self.ids.len(), "a token is chosen behind ids that nobody knows");
        match self.ids.get_mut(position) {
            Some(known) => *known = id,
            None => self.ids.push(id),
        }
    }
}

/// A made-up prompt: a function of seed, request and position, so that no order of arrival changes it.
pub fn random_prompt(seed: u64, request: &Request, vocab: u32) -> Vec<u32> {
    (0..request.prompt_tokens).map(|position| own_token(seed, request.id, position, vocab)).collect()
}

/// A made-up prompt that begins with pieces of texts, which are the same in every prompt that has them.
///
/// # Errors
/// It repeats output that no transcript holds.
pub(super) fn prompt_of_pieces(
    (seed, vocab): (u64, u32),
    request: &Request,
    pieces: &[Piece],
    transcripts: &Transcripts,
) -> Result<Vec<u32>, Reject> {
    let mut ids = Vec::with_capacity(request.prompt_tokens as usize);
    for Piece { text, first, count } in whole_prompt(pieces, request.id, request.prompt_tokens) {
        let range = first..first + count;
        match text {
            Text::Written(text) => {
                ids.extend(range.map(|index| below(draw(seed, Stream::Texts, text, u64::from(index)), vocab)));
            }
            Text::Prompt(of) => ids.extend(range.map(|position| own_token(seed, of, position, vocab))),
            Text::Output(of) => {
                let output = transcripts.find(of).map_or(&[][..], |transcript| &transcript.output);
                let known = output.get(first as usize..range.end as usize);
                let needed = range.end;
                ids.extend_from_slice(known.ok_or(Reject::Output { of, needed, known: output.len() })?);
            }
        }
    }
    Ok(ids)
}

fn own_token(seed: u64, RequestId(request): RequestId, position: u32, vocab: u32) -> u32 {
    below(draw(seed, Stream::Prompts, u64::from(request), u64::from(position)), vocab)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Nanos;

    #[test]
    fn a_longer_random_prompt_begins_with_the_shorter() {
        let prompt = |id, prompt_tokens| {
            let request = Request { id: RequestId(id), arrival: Nanos::ZERO, prompt_tokens, max_output_tokens: 1 };
            random_prompt(3, &request, 100)
        };
        let long = prompt(5, 40);
        assert_eq!(prompt(5, 10), long[..10]);
        assert_ne!(prompt(6, 40), long);
        assert!(long.iter().all(|&token| token < 100));
    }
}
