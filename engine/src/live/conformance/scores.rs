//! What a run tells of its tokens' probabilities: each once, and of an output what its kept logits say.

use std::collections::BTreeMap;

use super::cases::{Case, TOP, asks_for_scores};
use super::compare::Mismatch;
use crate::batch::{Outcome, Scored, TokenAt};
use crate::live::{Score, ScoredId, Transcripts};
use crate::request::RequestId;

/// The scores of a case's prompts so far, by request in order of position.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PromptScores {
    by_request: BTreeMap<RequestId, Vec<Scored>>,
}

impl PromptScores {
    /// The scores of every prompt that asked for them.
    pub fn iter(&self) -> impl Iterator<Item = (RequestId, &[Scored])> {
        self.by_request.iter().map(|(&request, scores)| (request, scores.as_slice()))
    }

    /// Takes in an outcome's scores, or says which row's are wrong.
    pub(super) fn take(&mut self, outcome: &Outcome, transcripts: &Transcripts) -> Result<(), (usize, String)> {
        let mut scores = outcome.scores.iter().peekable();
        for (i, (row, told)) in outcome.batch.rows.iter().zip(&outcome.rows).enumerate() {
            if !asks_for_scores(row.request) {
                continue;
            }
            let prompt = self.by_request.entry(row.request).or_default();
            while let Some(scored) = scores.next_if(|scored| scored.request == row.request && is_of_prompt(scored)) {
                let next = TokenAt::Prompt(prompt.len() as u32 + 1);
                if scored.at != next {
                    return Err((i, format!("{:?} is scored where {next:?} is next", scored.at)));
                }
                prompt.push(scored.clone());
            }
            for token in row.token..row.token + row.delivered(told) {
                let at = TokenAt::Output(token);
                let transcript = transcripts.get(row.request);
                let (id, logits) = (transcript.output[token as usize], &transcript.logits[token as usize]);
                let score = Score { request: row.request, at, lane: 0, id: ScoredId::Given(id), top: TOP };
                let (expected, got) = (score.of(logits, &[]), scores.next());
                if got != expected.as_ref() {
                    return Err((i, format!("token {token} is scored {got:?}, expected {expected:?}")));
                }
            }
        }
        match scores.next() {
            Some(scored) => Err((0, format!("nobody asked for {scored:?}"))),
            None => Ok(()),
        }
    }

    /// Every prompt that asked was scored to its end, but for its first token.
    pub(super) fn check_whole(&self, case: &Case) -> Result<(), Mismatch> {
        for submission in &case.submissions {
            let request = submission.arrival.request;
            let told = self.by_request.get(&request.id).map_or(0, Vec::len);
            if asks_for_scores(request.id) && told + 1 != request.prompt_tokens as usize {
                let what = format!("{told} scores of a prompt of {} tokens", request.prompt_tokens);
                return Err(Mismatch { request: request.id.0, token: 0, what });
            }
        }
        Ok(())
    }

    /// The same bits, or the first request whose scores differ.
    pub(super) fn equals(&self, other: &Self) -> Result<(), Mismatch> {
        match self.iter().zip(other.iter()).find(|(one, other)| one != other) {
            Some(((request, _), _)) => {
                Err(Mismatch { request: request.0, token: 0, what: "its prompt is scored otherwise".into() })
            }
            None => Ok(()),
        }
    }
}

fn is_of_prompt(scored: &Scored) -> bool {
    matches!(scored.at, TokenAt::Prompt(_))
}
