//! Offload preemption: a sequence's blocks move to pinned host memory as they are, and come back into other blocks.

use super::error::CudaError;
use super::executor::CudaExecutor;
use super::memory::{Address, Pinned};
use super::upload::Upload;
use crate::batch::{Batch, Plane, Row};

/// What a sequence keeps while it has no slot.
#[derive(Debug)]
pub(super) struct Parked {
    core: Pinned,
    boundary: Pinned,
    depths: Pinned,
    /// Blocks saved of each core plane, and of the boundary table.
    blocks: usize,
}

/// One sequence's blocks on their way: offsets of job lists in the upload.
struct Move {
    core: (usize, usize),
    boundary: (usize, usize),
}

impl CudaExecutor {
    /// Copies the sequences' blocks out.
    pub(super) fn queue_offload(&mut self, batch: &Batch, upload: &mut Pinned) -> Result<(), CudaError> {
        self.stats.eager_batches += 1;
        let mut out = Upload::new(upload);
        let moves: Vec<Move> = batch.rows.iter().map(|row| self.jobs(row, usize::MAX, &mut out)).collect();
        let bytes = out.finish(batch.rows.len(), 0, 0, 0);
        self.store.upload.upload(&self.ops.device, upload, bytes)?;
        for (row, jobs) in batch.rows.iter().zip(&moves) {
            let pool_bytes = |count: usize, layers: usize| count * layers * self.store.core.block_numbers as usize * 2;
            let parked = Parked {
                core: self.spare.take(pool_bytes(jobs.core.1, self.store.core.layers))?,
                boundary: self.spare.take(pool_bytes(jobs.boundary.1, self.store.boundary.layers))?,
                depths: self.spare.take(row.tokens as usize)?,
                blocks: self.mirror.blocks(row.slot, Plane::Core(0)).len(),
            };
            self.queue_moves(row, jobs, &parked, false)?;
            self.parked.insert(row.request, parked);
        }
        Ok(())
    }

    /// Copies them back into the newly appended blocks; gives the pinned memory to be held until that has run.
    pub(super) fn queue_restore(
        &mut self,
        batch: &Batch,
        appended: &[[i32; 4]],
        upload: &mut Pinned,
    ) -> Result<Vec<Pinned>, CudaError> {
        self.stats.eager_batches += 1;
        let rows: Vec<[i32; 4]> = batch
            .rows
            .iter()
            .map(|row| {
                let transcript = self.transcripts.get(row.request);
                // The token behind its KV is the next step's input.
                let token = transcript.token_at(row.context());
                [row.slot.0 as i32, row.context() as i32, 0, token as i32]
            })
            .collect();
        let parked: Vec<Parked> = batch
            .rows
            .iter()
            .map(|row| self.parked.remove(&row.request).expect("a sequence is offloaded before it is restored"))
            .collect();
        let mut out = Upload::new(upload);
        let rows_at = out.put(&rows);
        let moves: Vec<Move> =
            batch.rows.iter().zip(&parked).map(|(row, parked)| self.jobs(row, parked.blocks, &mut out)).collect();
        let appended_at = out.put(appended);
        let bytes = out.finish(rows.len(), 0, appended.len(), appended_at);
        let store = &self.store;
        store.upload.upload(&self.ops.device, upload, bytes)?;
        let at = |offset| store.upload.at(offset);
        self.ops.begin(at(0), store.tables.address(), (store.counters.address(), 0))?;
        self.ops.set_tokens([at(0), at(rows_at), store.last_tokens.address()])?;
        for ((row, jobs), parked) in batch.rows.iter().zip(&moves).zip(&parked) {
            self.queue_moves(row, jobs, parked, true)?;
        }
        Ok(parked.into_iter().flat_map(|parked| [parked.core, parked.boundary, parked.depths]).collect())
    }

    /// Lists a sequence's first `blocks` blocks of every table: block, place among the saved.
    fn jobs(&self, row: &Row, blocks: usize, out: &mut Upload<'_>) -> Move {
        let mut list = |planes: &mut dyn Iterator<Item = Plane>| {
            let blocks = planes.flat_map(|plane| self.mirror.blocks(row.slot, plane).iter().take(blocks));
            let jobs: Vec<[i32; 2]> = (0..).zip(blocks).map(|(place, &block)| [block as i32, place]).collect();
            (out.put(&jobs), jobs.len())
        };
        let core = list(&mut (0..self.store.planes).map(|plane| Plane::Core(plane as u8)));
        Move { core, boundary: list(&mut std::iter::once(Plane::Boundary)) }
    }

    fn queue_moves(&self, row: &Row, jobs: &Move, parked: &Parked, restores: bool) -> Result<(), CudaError> {
        let pools =
            [(&self.store.core, jobs.core, &parked.core), (&self.store.boundary, jobs.boundary, &parked.boundary)];
        for (pool, (at, count), saved) in pools {
            if count > 0 {
                let addresses: [Address; 3] = [pool.buffer.address(), saved.address(), self.store.upload.at(at)];
                self.ops.move_blocks(addresses, (pool.layers, pool.layer_numbers), count, restores)?;
            }
        }
        let sizes = [row.slot.0 as i32, self.store.context_max as i32, row.tokens as i32];
        self.ops.move_depths([self.store.depths.address(), parked.depths.address()], sizes, restores)
    }
}
