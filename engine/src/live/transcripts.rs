//! What a live run said: tokens, exit depths and, if asked for, logits. Kept by request, so no slot or schedule shows.

use std::collections::BTreeMap;

use crate::executor::ExitSource;
use crate::request::RequestId;
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

/// The transcripts of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Transcripts {
    by_request: BTreeMap<RequestId, Transcript>,
}

impl Transcripts {
    /// Begins a transcript.
    pub fn begin(&mut self, request: RequestId, prompt: &[u32]) {
        self.by_request.insert(request, Transcript { prompt: prompt.to_vec(), ..Transcript::default() });
    }

    /// Adds output token number `index`, in place of what was there from it on if the sequence was truncated.
    pub fn push(&mut self, request: RequestId, index: u32, token: OutputToken) {
        let transcript = self.by_request.entry(request).or_default();
        let index = index as usize;
        assert!(index <= transcript.output.len(), "output tokens come in order");
        transcript.output.truncate(index);
        transcript.depths.truncate(index);
        transcript.logits.truncate(index);
        transcript.output.push(token.token);
        transcript.depths.push(token.depth);
        transcript.logits.extend(token.logits);
    }

    /// Drops a transcript.
    pub fn remove(&mut self, request: RequestId) {
        self.by_request.remove(&request);
    }

    /// One request's transcript, if it was admitted and is not forgotten.
    pub fn find(&self, request: RequestId) -> Option<&Transcript> {
        self.by_request.get(&request)
    }

    /// The same. Panics if the request was never admitted, or is forgotten.
    pub fn get(&self, request: RequestId) -> &Transcript {
        self.by_request.get(&request).unwrap_or_else(|| panic!("request {} has no transcript", request.0))
    }

    /// Every transcript, by request number.
    pub fn iter(&self) -> impl Iterator<Item = (RequestId, &Transcript)> {
        self.by_request.iter().map(|(&request, transcript)| (request, transcript))
    }

    /// The exits of this run, to be saved or replayed.
    pub fn recorded_exits(&self) -> TakenExits {
        TakenExits { depths: self.iter().map(|(request, transcript)| (request, transcript.depths.clone())).collect() }
    }
}

/// The exits that a live run took.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TakenExits {
    /// By request, one depth an output token; the first, from prefill, is full depth.
    pub depths: BTreeMap<RequestId, Vec<Depth>>,
}

impl ExitSource for TakenExits {
    fn exit_depth(&self, request: RequestId, token: u32) -> Depth {
        let depths = self.depths.get(&request).map(Vec::as_slice).unwrap_or_default();
        match depths.get(token as usize) {
            Some(&depth) => depth,
            // Late rows run behind a sequence's last token; their exits decide nothing.
            None => *depths.first().expect("every recorded request made at least one token"),
        }
    }
}
