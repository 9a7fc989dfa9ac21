//! Offload preemption: a sequence's pages leave the pools as they are, and come back into other pages.

use super::element::Element;
use super::executor::CpuBackend;
use crate::batch::Page;
use crate::live::Transfer;

/// One page in host memory.
#[derive(Debug)]
pub(super) struct Saved<E> {
    boundary: Vec<E>,
    /// By plane.
    core: Vec<Vec<E>>,
    depths: Vec<u8>,
}

impl<E: Element> CpuBackend<E> {
    /// Copies the sequences' pages out. They wait between two tokens, so there is no state inside the loop.
    pub(super) fn offload(&mut self, transfers: &[Transfer]) {
        for transfer in transfers {
            let pages = self.places.tables().pages(transfer.slot).to_vec();
            let save = |page: Page| Saved {
                boundary: self.boundary.save(page.0),
                core: (0..self.places.planes())
                    .map(|plane| self.core.save(self.places.core_block(page, plane)))
                    .collect(),
                depths: self.places.depths_of(page).to_vec(),
            };
            let saved = pages.into_iter().map(save).collect();
            self.parked.insert(transfer.request, saved);
        }
    }

    /// Copies them back into the newly appended pages.
    pub(super) fn restore(&mut self, transfers: &[Transfer]) {
        for transfer in transfers {
            let saved = self.parked.remove(&transfer.request).expect("a sequence is offloaded before it is restored");
            let pages = self.places.tables().pages(transfer.slot).to_vec();
            assert!(pages.len() >= saved.len(), "too few pages for what was offloaded");
            for (page, saved) in pages.into_iter().zip(saved) {
                self.boundary.restore(page.0, &saved.boundary);
                for (plane, saved) in (0..).zip(&saved.core) {
                    self.core.restore(self.places.core_block(page, plane), saved);
                }
                self.places.depths_of(page).copy_from_slice(&saved.depths);
            }
            self.tokens[transfer.place as usize] = transfer.token.expect("a sequence comes back with its last token");
        }
    }
}
