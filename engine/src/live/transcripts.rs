//! What a live run said: tokens, exit depths and, if asked for, logits. Kept by request, so no slot or schedule shows.

use std::collections::BTreeMap;

use super::prompts::{PromptError, Prompts};
use crate::executor::ExitSource;
use crate::request::{Arrival, Request, RequestId};
use crate::units::Depth;

/// One request's tokens.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Transcript {
    /// What it asked; empty until it is admitted.
    pub prompt: Vec<u32>,
    /// What it was answered.
    pub output: Vec<u32>,
    /// The depth at which each output token left the loop; tokens made by a prefill left at full depth.
    pub depths: Vec<Depth>,
    /// The logits from which each output token was chosen; empty unless they are kept.
    pub logits: Vec<Vec<f32>>,
    output_tokens: u32,
    ended: bool,
}

/// A token just made.
#[derive(Clone, Debug, PartialEq)]
pub struct OutputToken {
    /// The token.
    pub token: u32,
    /// The depth at which it left the loop.
    pub depth: Depth,
    /// Its logits, if they are kept.
    pub logits: Option<Vec<f32>>,
}

impl Transcript {
    /// The token at a position: of the prompt, or of the output behind it.
    pub fn token_at(&self, position: u32) -> u32 {
        let position = position as usize;
        match position.checked_sub(self.prompt.len()) {
            None => self.prompt[position],
            Some(output) => self.output[output],
        }
    }
}

/// The transcripts of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Transcripts {
    by_request: BTreeMap<RequestId, Transcript>,
}

impl Transcripts {
    /// Learns the true output length, which the scheduler does not.
    pub fn arrive(&mut self, arrival: &Arrival) {
        let output_tokens = arrival.output_tokens;
        self.by_request.insert(arrival.request.id, Transcript { output_tokens, ..Transcript::default() });
    }

    /// Fetches a request's prompt when it first gets a slot.
    ///
    /// # Errors
    /// The prompt does not belong to the request.
    pub fn admit(&mut self, request: &Request, prompts: &Prompts, vocab: u32) -> Result<(), PromptError> {
        let transcript = self.by_request.entry(request.id).or_default();
        if transcript.prompt.is_empty() {
            transcript.prompt = prompts.prompt(request, vocab)?;
        }
        Ok(())
    }

    /// Adds output token number `index`; `ends` says that it is the sequence's last.
    ///
    /// The row that runs late for a sequence which has ended (`finish: eos`) adds nothing.
    pub fn push(&mut self, request: RequestId, index: u32, token: OutputToken, ends: bool) {
        let transcript = self.by_request.get_mut(&request).expect("a request arrives before it speaks");
        if transcript.ended {
            return;
        }
        assert_eq!(index as usize, transcript.output.len(), "output tokens come in order, each once");
        transcript.output.push(token.token);
        transcript.depths.push(token.depth);
        transcript.logits.extend(token.logits);
        transcript.ended = ends;
    }

    /// True if output token number `index` is the last by the arrival's true length.
    pub fn is_last(&self, request: RequestId, index: u32) -> bool {
        index + 1 == self.by_request[&request].output_tokens
    }

    /// True if the sequence's last token was made; what still runs for it runs late.
    pub fn has_ended(&self, request: RequestId) -> bool {
        self.by_request[&request].ended
    }

    /// One request's transcript. Panics if the request never arrived.
    pub fn get(&self, request: RequestId) -> &Transcript {
        self.by_request.get(&request).unwrap_or_else(|| panic!("request {} never arrived", request.0))
    }

    /// Every transcript, by request number.
    pub fn iter(&self) -> impl Iterator<Item = (RequestId, &Transcript)> {
        self.by_request.iter().map(|(&request, transcript)| (request, transcript))
    }

    /// The exits of this run, to be saved or replayed.
    pub fn recorded_exits(&self) -> RecordedExits {
        RecordedExits {
            depths: self.iter().map(|(request, transcript)| (request, transcript.depths.clone())).collect(),
        }
    }
}

/// The exits that a live run took.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordedExits {
    /// By request, one depth an output token; the first, from prefill, is full depth.
    pub depths: BTreeMap<RequestId, Vec<Depth>>,
}

impl ExitSource for RecordedExits {
    fn exit_depth(&self, request: RequestId, token: u32) -> Depth {
        let depths = self.depths.get(&request).map(Vec::as_slice).unwrap_or_default();
        match depths.get(token as usize) {
            Some(&depth) => depth,
            // Late rows run behind a sequence's last token; their exits decide nothing.
            None => *depths.first().expect("every recorded request made at least one token"),
        }
    }
}
