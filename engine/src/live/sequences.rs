//! What is known on the host of each request: its ids by position, and how its tokens are chosen.

use std::sync::Arc;

use super::backend::Banned;
use super::exits::Decider;
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
    let RequestId(id) = request.id;
    let token = |position| below(draw(seed, Stream::Prompts, u64::from(id), u64::from(position)), vocab);
    (0..request.prompt_tokens).map(token).collect()
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
