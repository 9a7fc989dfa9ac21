//! The executors' mirror of the block tables, and the depth at which every token left the loop.
//!
//! The exit depths are what makes `last_exited` free of copies: a loop at depth d reads token j from plane
//! min(d, exit_j), so a token that left early serves the planes that it never reached.

use crate::batch::{Batch, Plane, Slot};
use crate::layout::Layout;
use crate::request::RequestId;
use crate::units::Depth;

/// Where a token's KV lies in a plane's pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The block.
    pub block: u32,
    /// The token within the block.
    pub offset: u32,
}

/// Block tables by slot.
#[derive(Clone, Debug)]
pub struct Tables {
    layout: Layout,
    block_tokens: u32,
    slots: Vec<SlotTables>,
}

#[derive(Clone, Debug, Default)]
struct SlotTables {
    request: Option<RequestId>,
    boundary: Vec<u32>,
    core: Vec<Vec<u32>>,
    /// By position, the deepest loop that ran; 0 where none did.
    depths: Vec<u8>,
}

impl Tables {
    /// Empty tables for up to `slots` sequences.
    pub fn new(layout: Layout, block_tokens: u32, r_max: Depth, slots: u32) -> Self {
        let planes = usize::from(layout.planes(r_max));
        let empty = SlotTables { core: vec![Vec::new(); planes], ..SlotTables::default() };
        Self { layout, block_tokens, slots: vec![empty; slots as usize] }
    }

    /// Clears the tables of admitted slots and appends the batch's blocks.
    pub fn apply(&mut self, batch: &Batch) {
        for (slot, request) in &batch.admitted {
            let tables = &mut self.slots[slot.index()];
            tables.request = Some(request.id);
            tables.boundary.clear();
            tables.core.iter_mut().for_each(Vec::clear);
            tables.depths.clear();
        }
        for appended in &batch.appended {
            let tables = &mut self.slots[appended.slot.index()];
            match appended.plane {
                Plane::Boundary => tables.boundary.push(appended.block),
                Plane::Core(plane) => tables.core[usize::from(plane)].push(appended.block),
            }
        }
    }

    /// The request whose tables are in `slot`.
    pub fn request(&self, slot: Slot) -> Option<RequestId> {
        self.slots[slot.index()].request
    }

    /// Notes that the loop at `depth` runs for a position, and says where its KV goes.
    pub fn write_core(&mut self, slot: Slot, position: u32, depth: Depth) -> Place {
        let tables = &mut self.slots[slot.index()];
        let at = position as usize;
        if tables.depths.len() <= at {
            tables.depths.resize(at + 1, 0);
        }
        tables.depths[at] = depth.0;
        self.core_place(slot, self.layout.plane_written(depth), position)
    }

    /// Where a loop at `depth` reads the KV of positions `0..tokens`, its own included.
    ///
    /// Panics if it would read a plane that was never written.
    pub fn core_reads(&self, slot: Slot, depth: Depth, tokens: u32) -> impl Iterator<Item = Place> {
        (0..tokens).map(move |position| {
            let left_at = self.depth(slot, position);
            let plane = self.layout.plane_read(depth, left_at);
            let written = plane <= self.layout.plane_written(left_at);
            assert!(written, "depth {depth} reads plane {plane} of position {position}, which left at depth {left_at}");
            self.core_place(slot, plane, position)
        })
    }

    /// Where the boundary layers keep positions `0..tokens`.
    pub fn boundary_places(&self, slot: Slot, tokens: u32) -> impl Iterator<Item = Place> {
        (0..tokens).map(move |position| self.place(&self.slots[slot.index()].boundary, position))
    }

    /// The depth at which a position left the loop. Panics if no loop ran for it.
    pub fn depth(&self, slot: Slot, position: u32) -> Depth {
        let depth = self.slots[slot.index()].depths.get(position as usize).copied().unwrap_or(0);
        assert!(depth > 0, "position {position} in slot {} is read, but no loop wrote it", slot.0);
        Depth(depth)
    }

    /// Where plane `plane` keeps a position.
    pub fn core_place(&self, slot: Slot, plane: u8, position: u32) -> Place {
        self.place(&self.slots[slot.index()].core[usize::from(plane)], position)
    }

    /// Planes of the core.
    pub fn planes(&self) -> u8 {
        self.slots[0].core.len() as u8
    }

    /// The blocks of one table.
    pub fn blocks(&self, slot: Slot, plane: Plane) -> &[u32] {
        let tables = &self.slots[slot.index()];
        match plane {
            Plane::Boundary => &tables.boundary,
            Plane::Core(plane) => &tables.core[usize::from(plane)],
        }
    }

    /// The depths by position, for a sequence that leaves its slot.
    pub fn depths(&self, slot: Slot) -> &[u8] {
        &self.slots[slot.index()].depths
    }

    /// Puts back the depths of a sequence that returns.
    pub fn restore_depths(&mut self, slot: Slot, depths: Vec<u8>) {
        self.slots[slot.index()].depths = depths;
    }

    fn place(&self, table: &[u32], position: u32) -> Place {
        let (index, offset) = (position / self.block_tokens, position % self.block_tokens);
        let held = table.len() * self.block_tokens as usize;
        let block = *table.get(index as usize).unwrap_or_else(|| {
            panic!("position {position} lies behind a table of {held} tokens: the scheduler appended too few blocks")
        });
        Place { block, offset }
    }
}
