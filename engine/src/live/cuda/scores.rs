//! Logits that come to the host because a request asked how probable its tokens were.
//!
//! Those of drawn tokens are there when they are drawn. A prompt's are made for this alone, as many rows at once as the
//! logits' buffer holds, and each piece is on its way to the host before the next is written over it.

use super::arguments::Gather;
use super::error::CudaError;
use super::executor::CudaBackend;
use super::memory::{Address, Pinned};
use crate::batch::Scored;
use crate::live::{Score, ScoredId, Work};

/// Some tokens' logits on the host, a row a score.
#[derive(Debug)]
pub(super) struct Piece {
    /// With their numbers among the work's scores.
    scores: Vec<(usize, Score)>,
    logits: Pinned,
}

impl Piece {
    /// Its memory, if it is worth keeping: a prompt's logits are too large.
    pub(super) fn spare(self) -> Option<Pinned> {
        self.scores.iter().all(|(_, score)| is_drawn(score)).then_some(self.logits)
    }
}

/// What all pieces of a work say once they have come, in the order of its scores. `chosen`: the ids that were drawn.
pub(super) fn told(pieces: &[Piece], vocab: usize, chosen: &[u32]) -> Vec<Scored> {
    let mut told = Vec::new();
    for Piece { scores, logits } in pieces {
        let bytes = &logits.bytes()[..scores.len() * vocab * 4];
        let rows = bytemuck::cast_slice::<u8, f32>(bytes).chunks_exact(vocab);
        told.extend(scores.iter().zip(rows).filter_map(|((at, score), row)| Some((*at, score.of(row, chosen)?))));
    }
    told.sort_by_key(|&(at, _)| at);
    told.into_iter().map(|(_, scored)| scored).collect()
}

/// The lanes of scores whose tokens are given.
pub(super) fn scored_lanes(scores: &[Score]) -> Vec<i32> {
    scores.iter().filter(|score| !is_drawn(score)).map(|score| score.lane as i32).collect()
}

fn is_drawn(score: &Score) -> bool {
    matches!(score.id, ScoredId::Drawn(_))
}

impl CudaBackend {
    /// Queues what the work's scores need, behind the work itself. `drawn`: the row of each draw's logits; `lanes_at`: where
    /// in the upload a prefill's [`scored_lanes`] lie.
    pub(super) fn queue_scores(
        &mut self,
        work: &Work,
        drawn: &[usize],
        lanes_at: usize,
    ) -> Result<Vec<Piece>, CudaError> {
        if work.scores.is_empty() {
            return Ok(Vec::new());
        }
        let row_bytes = self.model.architecture.vocab as usize * 4;
        type Numbered = Vec<(usize, Score)>;
        let (of_draws, of_prompts): (Numbered, Numbered) =
            work.scores.iter().copied().enumerate().partition(|(_, score)| is_drawn(score));
        let mut pieces = Vec::new();
        if !of_draws.is_empty() {
            let to = self.spare.take(of_draws.len() * row_bytes)?;
            for (at, (_, score)) in of_draws.iter().enumerate() {
                if let ScoredId::Drawn(draw) = score.id {
                    let row = drawn[draw as usize];
                    let logits = &self.store.scratch.logits;
                    logits.download_part(&self.ops.device, row * row_bytes, (&to, at * row_bytes), row_bytes)?;
                }
            }
            pieces.push(Piece { scores: of_draws, logits: to });
        }
        let rows_max = self.store.scratch.logits.bytes() / row_bytes;
        for (piece, scores) in of_prompts.chunks(rows_max).enumerate() {
            let lanes: Address = self.store.scratch.upload.at(lanes_at + piece * rows_max * 4);
            let to = self.prompt_logits(lanes, scores.len())?;
            pieces.push(Piece { scores: scores.to_vec(), logits: to });
        }
        Ok(pieces)
    }

    /// Queues the LM head for `count` lanes of the prefill that was queued last, and their logits' way to the host.
    fn prompt_logits(&mut self, lanes: Address, count: usize) -> Result<Pinned, CudaError> {
        let store = &self.store;
        let (y, z, logits) =
            (store.scratch.y.address(), store.scratch.branch.address(), store.scratch.logits.address());
        // Behind a copy from the buffers that it writes, so it may not start early.
        self.ops.chained.set(false);
        self.ops.gather(Gather { picks: lanes, from: y, to: z }, count)?;
        self.ops.logits(&self.model.head, (z, logits), count)?;
        let bytes = count * self.model.architecture.vocab as usize * 4;
        let to = self.spare.take(bytes)?;
        self.store.scratch.logits.download(&self.ops.device, &to, bytes)?;
        Ok(to)
    }
}
