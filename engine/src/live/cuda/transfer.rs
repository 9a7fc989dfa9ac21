//! Offload preemption: a sequence's pages move to pinned host memory as they are, and come back into other pages.

use super::arguments::{MoveBlocks, MoveDepths};
use super::error::CudaError;
use super::executor::CudaBackend;
use super::memory::Pinned;
use super::upload::{Row, Upload};
use crate::live::{Transfer, Work};

/// What a sequence keeps while it has no slot.
#[derive(Debug)]
pub(super) struct Parked {
    pub(super) core: Pinned,
    pub(super) boundary: Pinned,
    pub(super) depths: Pinned,
    pages: usize,
}

/// One sequence's pages on their way: offsets of job lists in the upload, and their lengths.
struct Move {
    core: (usize, usize),
    pages: (usize, usize),
}

impl CudaBackend {
    /// Copies the sequences' pages out.
    pub(super) fn queue_offload(&mut self, work: &Work, upload: &mut Pinned) -> Result<(), CudaError> {
        self.stats.eager_batches += 1;
        let mut out = Upload::new(upload);
        let moves: Vec<Move> =
            work.transfers.iter().map(|transfer| self.jobs(transfer, usize::MAX, &mut out)).collect();
        let bytes = out.finish(work.transfers.len(), 0, 0, 0);
        self.store.scratch.upload.upload(&self.ops.device, upload, bytes)?;
        let block_tokens = self.config.scheduler.kv.block_tokens as usize;
        for (transfer, jobs) in work.transfers.iter().zip(&moves) {
            let pool_bytes =
                |count: usize, layers: usize| count * layers * self.store.kv.core.block_numbers as usize * 2;
            let pages = jobs.pages.1;
            let parked = Parked {
                core: self.spare.take(pool_bytes(jobs.core.1, self.store.kv.core.layers))?,
                boundary: self.spare.take(pool_bytes(pages, self.store.kv.boundary.layers))?,
                depths: self.spare.take(pages * block_tokens)?,
                pages,
            };
            self.queue_moves(jobs, &parked, false)?;
            self.parked.insert(transfer.request, parked);
        }
        Ok(())
    }

    /// Copies them back into the newly appended pages; gives the pinned memory to be held until that has run.
    pub(super) fn queue_restore(
        &mut self,
        work: &Work,
        entries: &[[i32; 4]],
        upload: &mut Pinned,
    ) -> Result<Vec<Pinned>, CudaError> {
        self.stats.eager_batches += 1;
        let row = |transfer: &Transfer| -> Row {
            let token = transfer.token.expect("a sequence comes back with its last token");
            [transfer.slot.0 as i32, transfer.place as i32, transfer.tokens as i32, 0, token as i32]
        };
        let rows: Vec<Row> = work.transfers.iter().map(row).collect();
        let remove = |transfer: &Transfer| {
            self.parked.remove(&transfer.request).expect("a sequence is offloaded before it is restored")
        };
        let parked: Vec<Parked> = work.transfers.iter().map(remove).collect();
        let mut out = Upload::new(upload);
        let rows_at = out.put(&rows);
        let moves: Vec<Move> = work
            .transfers
            .iter()
            .zip(&parked)
            .map(|(transfer, parked)| self.jobs(transfer, parked.pages, &mut out))
            .collect();
        let entries_at = out.put(entries);
        let bytes = out.finish(rows.len(), 0, entries.len(), entries_at);
        let store = &self.store;
        store.scratch.upload.upload(&self.ops.device, upload, bytes)?;
        let at = |offset| store.scratch.upload.at(offset);
        self.ops.begin(at(0), store.kv.tables.address(), (store.scratch.counters.address(), 0))?;
        self.ops.set_tokens(at(0), at(rows_at), store.positions.inputs.address())?;
        for (jobs, parked) in moves.iter().zip(&parked) {
            self.queue_moves(jobs, parked, true)?;
        }
        Ok(parked.into_iter().flat_map(|parked| [parked.core, parked.boundary, parked.depths]).collect())
    }

    /// Lists a sequence's first `pages` pages, and their blocks in every plane of the core: which, and its place among the
    /// saved.
    fn jobs(&self, transfer: &Transfer, pages: usize, out: &mut Upload<'_>) -> Move {
        let planes = self.store.kv.planes as i32;
        let pages = self.tables.pages(transfer.slot).iter().take(pages).map(|page| page.0 as i32);
        let blocks = pages.clone().flat_map(|page| (0..planes).map(move |plane| page * planes + plane));
        let mut list = |jobs: Vec<[i32; 2]>| (out.put(&jobs), jobs.len());
        let core = list(blocks.zip(0..).map(|(block, place)| [block, place]).collect());
        Move { core, pages: list(pages.zip(0..).map(|(page, place)| [page, place]).collect()) }
    }

    fn queue_moves(&self, jobs: &Move, parked: &Parked, restores: bool) -> Result<(), CudaError> {
        let pools =
            [(&self.store.kv.core, jobs.core, &parked.core), (&self.store.kv.boundary, jobs.pages, &parked.boundary)];
        for (pool, (at, count), saved) in pools {
            if count > 0 && pool.layers > 0 {
                let blocks = MoveBlocks {
                    pool: pool.buffer.address(),
                    saved: saved.address(),
                    jobs: self.store.scratch.upload.at(at),
                    layers: pool.layers,
                    layer_stride: pool.layer_numbers,
                    restores,
                };
                self.ops.move_blocks(blocks, count)?;
            }
        }
        let (at, count) = jobs.pages;
        let (depths, saved) = (self.store.kv.depths.address(), parked.depths.address());
        self.ops.move_depths(MoveDepths { depths, saved, jobs: self.store.scratch.upload.at(at), restores }, count)
    }
}
