//! Paged KV: pages counted by reference, and a table of them per sequence. Sizes only; the bytes live in the executors,
//! which mirror the tables.
//!
//! A page is one block of tokens in every plane of the core and in the boundary layers' pool. `kv.blocks` counts blocks of
//! one core plane, so a page takes as many as there are planes.

use std::collections::BTreeMap;

use crate::batch::{Page, Slot, TableEdit};

/// The scheduler's side of the KV cache.
#[derive(Clone, Debug)]
pub struct KvCache {
    /// Free pages, last released first.
    free: Vec<Page>,
    /// Tables that hold each page.
    references: Vec<u32>,
    tables: Vec<Table>,
    /// Core blocks, `planes` of them a page; a rest is never used.
    blocks: u32,
    planes: u8,
    block_tokens: u32,
    reserved: u64,
}

/// What one resident sequence holds.
#[derive(Clone, Debug, Default)]
struct Table {
    pages: Vec<Page>,
    reserved: u64,
}

impl KvCache {
    /// `blocks` blocks of `block_tokens` tokens of one core plane each, for up to `slots` sequences.
    pub fn new(blocks: u32, block_tokens: u32, planes: u8, slots: u32) -> Self {
        assert!(block_tokens > 0 && planes > 0, "a block holds at least one token of one plane");
        let pages = blocks / u32::from(planes);
        Self {
            free: (0..pages).rev().map(Page).collect(),
            references: vec![0; pages as usize],
            tables: vec![Table::default(); slots as usize],
            blocks,
            planes,
            block_tokens,
            reserved: 0,
        }
    }

    /// Core blocks that `tokens` tokens of one sequence take, all planes together.
    pub fn blocks_for(&self, tokens: u64) -> u64 {
        tokens.div_ceil(u64::from(self.block_tokens)) * u64::from(self.planes)
    }

    /// Core blocks in the pool.
    pub fn total_blocks(&self) -> u64 {
        u64::from(self.blocks)
    }

    /// Core blocks that no sequence holds.
    pub fn free_blocks(&self) -> u64 {
        self.total_blocks() - self.used_blocks()
    }

    /// Core blocks that sequences hold; a block that several hold counts once.
    pub fn used_blocks(&self) -> u64 {
        (self.references.len() - self.free.len()) as u64 * u64::from(self.planes)
    }

    /// Core blocks that are promised to resident sequences.
    pub fn reserved_blocks(&self) -> u64 {
        self.reserved
    }

    /// Promises `blocks` to the sequence in `slot`.
    pub fn reserve(&mut self, slot: Slot, blocks: u64) {
        self.tables[slot.index()].reserved += blocks;
        self.reserved += blocks;
        assert!(self.reserved <= self.total_blocks(), "more blocks were reserved than there are");
    }

    /// Blocks that the sequence in `slot` lacks to hold `tokens` tokens, all planes together.
    pub fn missing_blocks(&self, slot: Slot, tokens: u32) -> u64 {
        self.missing_pages(slot, tokens) as u64 * u64::from(self.planes)
    }

    /// Grows the table of `slot` to hold `tokens` tokens, or changes nothing and returns false.
    pub fn grow(&mut self, slot: Slot, tokens: u32, edits: &mut Vec<TableEdit>) -> bool {
        let missing = self.missing_pages(slot, tokens);
        if missing > self.free.len() {
            return false;
        }
        for _ in 0..missing {
            let page = self.free.pop().expect("counted above");
            self.references[page.index()] = 1;
            self.tables[slot.index()].pages.push(page);
            edits.push(TableEdit::Append(slot, page));
        }
        true
    }

    /// Adds a page that another table holds to the end of `slot`'s. Panics if nobody holds it.
    pub fn adopt(&mut self, slot: Slot, page: Page, edits: &mut Vec<TableEdit>) {
        let references = &mut self.references[page.index()];
        assert!(*references > 0, "page {} is adopted, but nobody holds it", page.0);
        *references += 1;
        self.tables[slot.index()].pages.push(page);
        edits.push(TableEdit::Adopt(slot, page));
    }

    /// Keeps the first `tokens` tokens of `slot` and gives back the pages behind them.
    pub fn truncate(&mut self, slot: Slot, tokens: u32, edits: &mut Vec<TableEdit>) {
        self.drop_pages(slot, tokens.div_ceil(self.block_tokens) as usize);
        edits.push(TableEdit::Truncate(slot, tokens));
    }

    /// Takes back all pages and reservations of `slot`.
    pub fn release(&mut self, slot: Slot) {
        self.drop_pages(slot, 0);
        self.reserved -= std::mem::take(&mut self.tables[slot.index()].reserved);
    }

    /// The pages of `slot`, in order of their tokens.
    pub fn pages(&self, slot: Slot) -> &[Page] {
        &self.tables[slot.index()].pages
    }

    /// Panics unless every page has as many references as holders and is free if it has none. It takes as long as the
    /// pages that are held, so that an idle scheduler is checked at once.
    pub fn check(&self) {
        let mut holders: BTreeMap<Page, u32> = BTreeMap::new();
        for &page in self.tables.iter().flat_map(|table| &table.pages) {
            *holders.entry(page).or_default() += 1;
        }
        for (&page, &count) in &holders {
            assert_eq!(self.references[page.index()], count, "page {} is held by {count} tables", page.0);
        }
        assert_eq!(holders.len() + self.free.len(), self.references.len(), "a page is neither free nor held, or both");
        let reserved: u64 = self.tables.iter().map(|table| table.reserved).sum();
        assert_eq!(reserved, self.reserved, "reservations do not add up");
    }

    fn missing_pages(&self, slot: Slot, tokens: u32) -> usize {
        (tokens.div_ceil(self.block_tokens) as usize).saturating_sub(self.tables[slot.index()].pages.len())
    }

    /// Keeps the first `kept` pages of `slot`.
    fn drop_pages(&mut self, slot: Slot, kept: usize) {
        let pages = &mut self.tables[slot.index()].pages;
        for page in pages.drain(kept.min(pages.len())..) {
            let references = &mut self.references[page.index()];
            *references = references.checked_sub(1).expect("a page was released twice");
            if *references == 0 {
                self.free.push(page);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growing_is_all_or_nothing() {
        let mut kv = KvCache::new(5, 16, 2, 2);
        let mut edits = Vec::new();
        assert!(kv.grow(Slot(0), 17, &mut edits));
        assert_eq!((kv.free_blocks(), edits.len()), (1, 2));
        assert!(!kv.grow(Slot(1), 1, &mut edits));
        assert_eq!((kv.free_blocks(), edits.len()), (1, 2));
        kv.check();
        kv.release(Slot(0));
        assert_eq!(kv.free_blocks(), 5);
        kv.check();
    }

    #[test]
    fn a_page_is_free_when_its_last_holder_lets_go() {
        let mut kv = KvCache::new(4, 16, 1, 2);
        let mut edits = Vec::new();
        assert!(kv.grow(Slot(0), 40, &mut edits));
        let shared = kv.pages(Slot(0))[0];
        kv.adopt(Slot(1), shared, &mut edits);
        assert_eq!(kv.used_blocks(), 3, "a shared page counts once");
        kv.check();
        kv.release(Slot(0));
        assert_eq!((kv.used_blocks(), kv.pages(Slot(1))), (1, &[shared][..]));
        kv.truncate(Slot(1), 0, &mut edits);
        assert_eq!((kv.used_blocks(), edits.last()), (0, Some(&TableEdit::Truncate(Slot(1), 0))));
        kv.check();
    }

    #[test]
    fn truncating_keeps_the_page_that_is_begun() {
        let mut kv = KvCache::new(4, 16, 1, 1);
        assert!(kv.grow(Slot(0), 64, &mut Vec::new()));
        kv.truncate(Slot(0), 17, &mut Vec::new());
        assert_eq!(kv.pages(Slot(0)).len(), 2);
        kv.check();
    }
}
