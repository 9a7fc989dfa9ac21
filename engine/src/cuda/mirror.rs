//! Block tables: the host's copy, and where an appended block lands in the device's.

use crate::batch::{Batch, Plane, Slot};
use crate::request::RequestId;

/// Block tables by slot. On the device all lie in one array: every slot's core planes, then every slot's boundary table.
#[derive(Debug)]
pub(super) struct Mirror {
    planes: usize,
    blocks_max: usize,
    slots: Vec<SlotTables>,
}

#[derive(Clone, Debug, Default)]
struct SlotTables {
    request: Option<RequestId>,
    /// The core's planes, then the boundary table.
    tables: Vec<Vec<u32>>,
}

impl Mirror {
    pub(super) fn new(slots: usize, planes: u8, blocks_max: usize) -> Self {
        let planes = usize::from(planes);
        let empty = SlotTables { request: None, tables: vec![Vec::new(); planes + 1] };
        Self { planes, blocks_max, slots: vec![empty; slots] }
    }

    /// Entries of the device's array.
    pub(super) fn entries(&self) -> usize {
        self.slots.len() * (self.planes + 1) * self.blocks_max
    }

    /// The first boundary entry.
    pub(super) fn boundary(&self) -> usize {
        self.slots.len() * self.planes * self.blocks_max
    }

    /// Takes in a batch's slots and blocks and gives the device's new entries: index, block.
    pub(super) fn apply(&mut self, batch: &Batch) -> Vec<[i32; 4]> {
        for (slot, request) in &batch.admitted {
            let tables = &mut self.slots[slot.index()];
            tables.request = Some(request.id);
            tables.tables.iter_mut().for_each(Vec::clear);
        }
        for row in &batch.rows {
            let owner = self.slots[row.slot.index()].request;
            assert_eq!(owner, Some(row.request), "slot {} belongs to another request", row.slot.0);
        }
        batch
            .appended
            .iter()
            .map(|appended| {
                let (slot, table) = (appended.slot.index(), self.table(appended.plane));
                let base = match appended.plane {
                    Plane::Core(plane) => (slot * self.planes + usize::from(plane)) * self.blocks_max,
                    Plane::Boundary => self.boundary() + slot * self.blocks_max,
                };
                let blocks = &mut self.slots[slot].tables[table];
                assert!(blocks.len() < self.blocks_max, "a table grows beyond max_context_tokens");
                blocks.push(appended.block);
                [(base + blocks.len() - 1) as i32, appended.block as i32, 0, 0]
            })
            .collect()
    }

    /// One table's blocks.
    pub(super) fn blocks(&self, slot: Slot, plane: Plane) -> &[u32] {
        &self.slots[slot.index()].tables[self.table(plane)]
    }

    fn table(&self, plane: Plane) -> usize {
        match plane {
            Plane::Core(plane) => usize::from(plane),
            Plane::Boundary => self.planes,
        }
    }
}
