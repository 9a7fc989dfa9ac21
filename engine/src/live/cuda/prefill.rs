//! Prefill: chunks of many prompts in one pass, at full depth, launched kernel by kernel: its shapes never repeat.

use super::arguments::Gather;
use super::error::CudaError;
use super::executor::CudaBackend;
use super::memory::Pinned;
use super::products::Phase;
use super::scores::scored_lanes;
use super::stages::{Rows, StageRun};
use super::upload::{BannedLists, Draw, Upload, rows, tiles};
use crate::live::{Lane, Work};

impl CudaBackend {
    /// Describes the chunks in pinned memory and queues the pass. Gives where in the upload the lanes lie whose tokens are
    /// scored but not drawn.
    pub(super) fn queue_prefill(
        &mut self,
        work: &Work,
        entries: &[[i32; 4]],
        upload: &mut Pinned,
    ) -> Result<usize, CudaError> {
        self.stats.eager_batches += 1;
        let tokens = rows(&work.lanes);
        let mut banned = BannedLists::new(size_of::<Draw>() * work.draws.len());
        let draws: Vec<Draw> = work.draws.iter().map(|draw| banned.draw(draw)).collect();
        let picks: Vec<i32> = work.draws.iter().map(|draw| draw.lane as i32).collect();
        let chunks = work.lanes.chunk_by(|one, next| one.slot == next.slot && one.position + 1 == next.position);
        let tiles = tiles(chunks.map(|chunk: &[Lane]| (chunk[0].slot.0, chunk[0].position, chunk.len() as u32)));
        let mut out = Upload::new(upload);
        let tokens_at = out.put(&tokens);
        let tiles_at = out.put(&tiles);
        let draw_header_at = out.put(&[draws.len() as i32, 0, 0, 0]);
        let draws_at = out.put(&draws);
        banned.put(&mut out, draws_at);
        let picks_at = out.put(&picks);
        let scored_at = out.put(&scored_lanes(&work.scores));
        let entries_at = out.put(entries);
        let bytes = out.finish(tokens.len(), 0, entries.len(), entries_at);
        let store = &self.store;
        store.scratch.upload.upload(&self.ops.device, upload, bytes)?;
        let at = |offset| store.scratch.upload.at(offset);
        let rows = Rows {
            phase: Phase::Prefill,
            count: tokens.len(),
            header: at(0),
            rows: at(tokens_at),
            parts: at(tiles_at),
            tiles: tiles.len(),
        };
        let r_max = self.config.scheduler.r_max;
        let mut run = StageRun {
            ops: &self.ops,
            model: &self.model,
            store,
            rows,
            layout: self.config.scheduler.kv.layout,
            initial_state: self.config.initial_state,
            r_max,
            criterion: self.criterion,
            spans: false,
            launches: 0,
        };
        run.ops.begin(at(0), store.kv.tables.address(), (store.scratch.counters.address(), 0))?;
        run.prelude()?;
        (1..=r_max.0).try_for_each(|depth| run.core(depth))?;
        // The coda's layers keep KV of every token, but only some make one.
        run.coda()?;
        if draws.is_empty() {
            return Ok(scored_at);
        }
        let (from, to) = (store.scratch.y.address(), store.scratch.branch.address());
        run.ops.gather(Gather { picks: at(picks_at), from, to }, picks.len())?;
        run.emit((at(draw_header_at), at(draws_at)), to, draws.len())?;
        Ok(scored_at)
    }
}
