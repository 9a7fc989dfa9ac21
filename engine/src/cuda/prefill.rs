//! Prefill: chunks of many prompts in one pass, at full depth, launched kernel by kernel: its shapes never repeat.

use super::error::CudaError;
use super::executor::CudaExecutor;
use super::memory::Pinned;
use super::products::Phase;
use super::stages::{Rows, Run};
use super::upload::{Upload, tiles};
use crate::batch::{Batch, Row, Stage};

impl CudaExecutor {
    /// Whether a batch reads output tokens that may still be on their way (a recompute), or that only a slot lost.
    pub(super) fn needs_tokens(&self, batch: &Batch) -> bool {
        let behind_prompt = |row: &Row| row.context() as usize > self.transcripts.get(row.request).prompt.len();
        match batch.stage {
            Stage::Prefill => batch.rows.iter().any(behind_prompt),
            Stage::Restore => true,
            _ => false,
        }
    }

    /// Describes the chunks in pinned memory and queues the pass.
    pub(super) fn queue_prefill(
        &mut self,
        batch: &Batch,
        appended: &[[i32; 4]],
        upload: &mut Pinned,
    ) -> Result<(), CudaError> {
        self.stats.eager_batches += 1;
        let r_max = self.config.scheduler.r_max;
        let mut tokens: Vec<[i32; 4]> = Vec::new();
        let (mut speakers, mut keys, mut picks): (Vec<[i32; 4]>, Vec<[i32; 2]>, Vec<i32>) = Default::default();
        for row in &batch.rows {
            let transcript = self.transcripts.get(row.request);
            let slot = row.slot.0 as i32;
            tokens.extend(
                (row.position..row.context())
                    .map(|position| [slot, position as i32, i32::from(r_max.0), transcript.token_at(position) as i32]),
            );
            if row.ends_prompt {
                picks.push(tokens.len() as i32 - 1);
                speakers.push([slot, row.context() as i32 - 1, i32::from(r_max.0), -1]);
                keys.push([row.request.0 as i32, row.token as i32]);
            }
        }
        let tiles = tiles(batch.rows.iter().map(|row| (row.slot.0, row.position, row.tokens)));
        let mut out = Upload::new(upload);
        let tokens_at = out.put(&tokens);
        let tiles_at = out.put(&tiles);
        let speaker_header_at = out.put(&[speakers.len() as i32, 0, 0, 0]);
        let speakers_at = out.put(&speakers);
        let keys_at = out.put(&keys);
        let picks_at = out.put(&picks);
        let appended_at = out.put(appended);
        let bytes = out.finish(tokens.len(), 0, appended.len(), appended_at);
        let store = &self.store;
        store.upload.upload(&self.ops.device, upload, bytes)?;
        let at = |offset| store.upload.at(offset);
        let rows = Rows {
            phase: Phase::Prefill,
            count: tokens.len(),
            header: at(0),
            rows: at(tokens_at),
            parts: at(tiles_at),
            tiles: tiles.len(),
        };
        let mut run = Run {
            ops: &self.ops,
            model: &self.model,
            store,
            rows,
            layout: self.config.scheduler.kv.layout,
            initial_state: self.config.initial_state,
            sampling: self.options.sampling,
            r_max,
            launches: 0,
        };
        run.ops.begin(at(0), store.tables.address(), (store.counters.address(), 0))?;
        run.prelude()?;
        (1..=r_max.0).try_for_each(|depth| run.core(depth))?;
        // The coda's layers keep KV of every token, but only the last of a prompt makes one.
        run.coda()?;
        if speakers.is_empty() {
            return Ok(());
        }
        run.ops.gather([at(picks_at), store.y.address(), store.z.address()], picks.len())?;
        run.speak([at(speaker_header_at), at(speakers_at), at(keys_at), store.z.address()], speakers.len())
    }
}
