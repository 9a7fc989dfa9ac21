//! Offload preemption: a sequence's blocks leave the pool as they are, and come back into other blocks.

use super::element::Element;
use super::executor::CpuExecutor;
use crate::batch::{Plane, Row};

/// What a sequence keeps while it has no slot. It waits between two tokens, so there is no state inside the loop.
#[derive(Debug)]
pub(super) struct Parked<E> {
    boundary: Vec<Vec<E>>,
    /// By plane, then block.
    core: Vec<Vec<Vec<E>>>,
    depths: Vec<u8>,
}

impl<E: Element> CpuExecutor<E> {
    /// Copies the sequences' blocks out.
    pub(super) fn offload(&mut self, rows: &[Row]) {
        for row in rows {
            let blocks = |plane| self.tables.blocks(row.slot, plane).iter();
            let parked = Parked {
                boundary: blocks(Plane::Boundary).map(|&block| self.boundary.save(block)).collect(),
                core: (0..self.tables.planes())
                    .map(|plane| blocks(Plane::Core(plane)).map(|&block| self.core.save(block)).collect())
                    .collect(),
                depths: self.tables.depths(row.slot).to_vec(),
            };
            self.parked.insert(row.request, parked);
        }
    }

    /// Copies them back into the newly appended blocks.
    pub(super) fn restore(&mut self, rows: &[Row]) {
        for row in rows {
            let parked = self.parked.remove(&row.request).expect("a sequence is offloaded before it is restored");
            let blocks = self.tables.blocks(row.slot, Plane::Boundary);
            assert!(blocks.len() >= parked.boundary.len(), "too few blocks for what was offloaded");
            blocks.iter().zip(&parked.boundary).for_each(|(&block, saved)| self.boundary.restore(block, saved));
            for (plane, saved) in (0..).zip(&parked.core) {
                let blocks = self.tables.blocks(row.slot, Plane::Core(plane));
                assert!(blocks.len() >= saved.len(), "too few blocks for what was offloaded");
                blocks.iter().zip(saved).for_each(|(&block, saved)| self.core.restore(block, saved));
            }
            self.tables.restore_depths(row.slot, parked.depths);
        }
    }
}
