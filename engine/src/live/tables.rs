//! A device's mirror of the page tables. A backend keeps one and applies a batch's edits when the device does.

use crate::batch::{Page, Slot, TableEdit};
use crate::request::RequestId;

/// Page tables by slot.
#[derive(Clone, Debug)]
pub struct Tables {
    block_tokens: u32,
    slots: Vec<Table>,
}

#[derive(Clone, Debug, Default)]
struct Table {
    request: Option<RequestId>,
    pages: Vec<Page>,
}

/// An entry that an edit added to a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableEntry {
    /// The table.
    pub slot: Slot,
    /// Its place there.
    pub index: usize,
    /// The page.
    pub page: Page,
}

impl Tables {
    /// Empty tables for up to `slots` sequences, of pages that hold `block_tokens` tokens each.
    pub fn new(block_tokens: u32, slots: u32) -> Self {
        Self { block_tokens, slots: vec![Table::default(); slots as usize] }
    }

    /// Makes a change and says which entry it added, if any.
    pub fn apply(&mut self, edit: &TableEdit) -> Option<TableEntry> {
        match *edit {
            TableEdit::Admit(slot, request) => {
                self.slots[slot.index()] = Table { request: Some(request.id), pages: Vec::new() };
                None
            }
            TableEdit::Append(slot, page) | TableEdit::Adopt(slot, page) => {
                let pages = &mut self.slots[slot.index()].pages;
                pages.push(page);
                Some(TableEntry { slot, index: pages.len() - 1, page })
            }
            TableEdit::Truncate(slot, tokens) => {
                self.slots[slot.index()].pages.truncate(tokens.div_ceil(self.block_tokens) as usize);
                None
            }
        }
    }

    /// Panics unless `slot` belongs to `request`.
    pub fn check_owner(&self, slot: Slot, request: RequestId) {
        assert_eq!(self.slots[slot.index()].request, Some(request), "slot {} belongs to another request", slot.0);
    }

    /// The pages of a slot, in order of their tokens.
    pub fn pages(&self, slot: Slot) -> &[Page] {
        &self.slots[slot.index()].pages
    }

    /// The page of a position, and the token within it. Panics if the table is too short.
    pub fn locate(&self, slot: Slot, position: u32) -> (Page, u32) {
        let pages = self.pages(slot);
        let (index, offset) = (position / self.block_tokens, position % self.block_tokens);
        let page = *pages.get(index as usize).unwrap_or_else(|| {
            let held = pages.len() * self.block_tokens as usize;
            panic!("position {position} lies behind a table of {held} tokens: the scheduler appended too few pages")
        });
        (page, offset)
    }
}
