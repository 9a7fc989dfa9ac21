//! Where every token's KV lies, and the depth at which each left the loop.
//!
//! The depths lie with the pages, so a page that is adopted brings them along. They make `last_exited` free of copies: a
//! loop at depth d reads token j from plane min(d, exit_j), so a token that left early serves the planes that it never
//! reached.

use crate::batch::{Page, Slot, TableEdit};
use crate::layout::Layout;
use crate::live::Tables;
use crate::scheduler::SchedulerConfig;
use crate::units::Depth;

/// Where a token's KV lies in a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// The block.
    pub(super) block: u32,
    /// The token within the block.
    pub(super) offset: u32,
}

/// The device's page tables and exit depths.
#[derive(Clone, Debug)]
pub(super) struct Places {
    tables: Tables,
    layout: Layout,
    planes: u8,
    block_tokens: u32,
    /// By page and token, the deepest loop that ran; 0 where none did.
    depths: Vec<u8>,
}

impl Places {
    pub(super) fn new(config: &SchedulerConfig) -> Self {
        let (layout, block_tokens) = (config.kv.layout, config.kv.block_tokens);
        let planes = layout.planes(config.r_max);
        let tokens = config.kv.blocks / u32::from(planes) * block_tokens;
        Self {
            tables: Tables::new(block_tokens, config.max_num_seqs),
            layout,
            planes,
            block_tokens,
            depths: vec![0; tokens as usize],
        }
    }

    /// Makes a batch's edits.
    pub(super) fn apply(&mut self, edits: &[TableEdit]) {
        for edit in edits {
            let added = self.tables.apply(edit);
            match (*edit, added) {
                (TableEdit::Append(..), Some(entry)) => self.depths_of(entry.page).fill(0),
                (TableEdit::Truncate(slot, tokens), _) if !tokens.is_multiple_of(self.block_tokens) => {
                    let (page, offset) = self.tables.locate(slot, tokens - 1);
                    self.depths_of(page)[offset as usize + 1..].fill(0);
                }
                _ => {}
            }
        }
    }

    /// The page tables.
    pub(super) fn tables(&self) -> &Tables {
        &self.tables
    }

    /// Notes that the loop at `depth` runs for a position.
    pub(super) fn mark(&mut self, slot: Slot, position: u32, depth: Depth) {
        let (page, offset) = self.tables.locate(slot, position);
        self.depths_of(page)[offset as usize] = depth.0;
    }

    /// Where a loop at `depth` reads the KV of positions `0..tokens`, its own included.
    ///
    /// Panics if it would read a plane that was never written.
    pub(super) fn core_reads(&self, slot: Slot, depth: Depth, tokens: u32) -> impl Iterator<Item = Place> {
        (0..tokens).map(move |position| {
            let (page, offset) = self.tables.locate(slot, position);
            let left_at = self.depths[(page.0 * self.block_tokens + offset) as usize];
            assert!(left_at > 0, "position {position} in slot {} is read, but no loop wrote it", slot.0);
            let plane = self.layout.plane_read(depth, Depth(left_at));
            let written = plane <= self.layout.plane_written(Depth(left_at));
            assert!(written, "depth {depth} reads plane {plane} of position {position}, which left at depth {left_at}");
            Place { block: self.core_block(page, plane), offset }
        })
    }

    /// Where the boundary layers keep positions `0..tokens`.
    pub(super) fn boundary_places(&self, slot: Slot, tokens: u32) -> impl Iterator<Item = Place> {
        (0..tokens).map(move |position| {
            let (page, offset) = self.tables.locate(slot, position);
            Place { block: page.0, offset }
        })
    }

    /// Where plane `plane` keeps a position.
    pub(super) fn core_place(&self, slot: Slot, plane: u8, position: u32) -> Place {
        let (page, offset) = self.tables.locate(slot, position);
        Place { block: self.core_block(page, plane), offset }
    }

    /// The block of a page in a plane of the core.
    pub(super) fn core_block(&self, page: Page, plane: u8) -> u32 {
        page.0 * u32::from(self.planes) + u32::from(plane)
    }

    /// Planes of the core.
    pub(super) fn planes(&self) -> u8 {
        self.planes
    }

    /// The depths of a page's tokens.
    pub(super) fn depths_of(&mut self, page: Page) -> &mut [u8] {
        let first = (page.0 * self.block_tokens) as usize;
        &mut self.depths[first..first + self.block_tokens as usize]
    }
}
