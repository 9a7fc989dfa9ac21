//! Paged KV: pages counted by reference, and a table of them per sequence. Sizes only; the bytes live in the executors,
//! which mirror the tables.
//!
//! A page is one block of tokens in every plane of the core and in the boundary layers' pool. `kv.blocks` counts blocks of
//! one core plane, so a page takes as many as there are planes.
//!
//! With a prefix cache, published pages that nobody holds count as free: they are given up when their room is needed.

use std::collections::BTreeMap;

use crate::batch::{Page, Slot, TableEdit};
use crate::content::PageKey;
use crate::prefix::Published;

/// The scheduler's side of the KV cache.
#[derive(Clone, Debug)]
pub struct KvCache {
    /// Pages that hold nothing, last released first.
    free: Vec<Page>,
    /// Tables that hold each page.
    references: Vec<u32>,
    tables: Vec<Table>,
    /// Pages that can be found by their tokens, where there is a prefix cache.
    published: Option<Published>,
    /// Core blocks, `planes` of them a page; a rest is never used.
    blocks: u32,
    planes: u8,
    block_tokens: u32,
    /// Pages that are promised to resident sequences beside those that they hold.
    promised: u64,
}

/// What one resident sequence holds.
#[derive(Clone, Debug, Default)]
struct Table {
    pages: Vec<Page>,
    /// Pages that it may hold at most, if any were promised.
    reserved: u64,
}

impl Table {
    fn promised(&self) -> u64 {
        self.reserved.saturating_sub(self.pages.len() as u64)
    }
}

/// Pages of a prompt that are in the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hit {
    /// How many, from the first on.
    pub pages: u32,
    /// Those of them that some table holds, so that another holder takes no room.
    pub held: u32,
    /// Those of them that hold output tokens.
    pub generated: u32,
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
            published: None,
            blocks,
            planes,
            block_tokens,
            promised: 0,
        }
    }

    /// The same with a prefix cache.
    #[must_use]
    pub fn with_prefix_cache(self) -> Self {
        Self { published: Some(Published::new(self.references.len() as u32)), ..self }
    }

    /// Core blocks that `tokens` tokens of one sequence take, all planes together.
    pub fn blocks_for(&self, tokens: u64) -> u64 {
        tokens.div_ceil(u64::from(self.block_tokens)) * u64::from(self.planes)
    }

    /// Core blocks in the pool.
    pub fn total_blocks(&self) -> u64 {
        u64::from(self.blocks)
    }

    /// Core blocks that no sequence holds; those of published pages among them.
    pub fn free_blocks(&self) -> u64 {
        self.total_blocks() - self.used_blocks()
    }

    /// Core blocks that sequences hold; a block that several hold counts once.
    pub fn used_blocks(&self) -> u64 {
        (self.references.len() - self.free_pages()) as u64 * u64::from(self.planes)
    }

    /// Core blocks of published pages that no sequence holds.
    pub fn cached_blocks(&self) -> u64 {
        self.published.as_ref().map_or(0, Published::unheld) as u64 * u64::from(self.planes)
    }

    /// Published pages that were given up so far.
    pub fn evicted_pages(&self) -> u64 {
        self.published.as_ref().map_or(0, Published::evicted)
    }

    /// Core blocks that sequences hold, or that are promised to them.
    pub fn reserved_blocks(&self) -> u64 {
        self.used_blocks() + self.promised * u64::from(self.planes)
    }

    /// Promises the sequence in `slot` room for `tokens` tokens in all.
    pub fn reserve(&mut self, slot: Slot, tokens: u64) {
        let pages = tokens.div_ceil(u64::from(self.block_tokens));
        self.edit(slot, |table| table.reserved = pages);
        assert!(self.reserved_blocks() <= self.total_blocks(), "more blocks were reserved than there are");
    }

    /// Blocks that the sequence in `slot` lacks to hold `tokens` tokens, all planes together.
    pub fn missing_blocks(&self, slot: Slot, tokens: u32) -> u64 {
        self.missing_pages(slot, tokens) as u64 * u64::from(self.planes)
    }

    /// Grows the table of `slot` to hold `tokens` tokens, or changes nothing and returns false.
    pub fn grow(&mut self, slot: Slot, tokens: u32, edits: &mut Vec<TableEdit>) -> bool {
        let missing = self.missing_pages(slot, tokens);
        if missing > self.free_pages() {
            return false;
        }
        for _ in 0..missing {
            let evicted = || self.published.as_mut().and_then(Published::evict);
            let page = self.free.pop().or_else(evicted).expect("counted above");
            self.references[page.index()] = 1;
            self.edit(slot, |table| table.pages.push(page));
            edits.push(TableEdit::Append(slot, page));
        }
        true
    }

    /// Adds a page to the end of `slot`'s that another table holds, or that is published. Panics if it holds nothing.
    pub fn adopt(&mut self, slot: Slot, page: Page, edits: &mut Vec<TableEdit>) {
        let references = &mut self.references[page.index()];
        *references += 1;
        if *references == 1 {
            let published = self.published.as_mut().filter(|published| published.has(page));
            published.unwrap_or_else(|| panic!("page {} is adopted, but nobody holds it", page.0)).take(page);
        }
        self.edit(slot, |table| table.pages.push(page));
        edits.push(TableEdit::Adopt(slot, page));
    }

    /// How many of a prompt's pages, in order, are published.
    pub fn hit(&self, keys: &[PageKey]) -> Hit {
        let mut hit = Hit::default();
        let Some(published) = &self.published else { return hit };
        for page in keys.iter().map_while(|&key| published.find(key)) {
            hit.pages += 1;
            hit.held += u32::from(self.references[page.index()] > 0);
            hit.generated += u32::from(published.is_generated(page));
        }
        hit
    }

    /// Adopts the pages of these keys, which [`KvCache::hit`] has found.
    pub fn adopt_published(&mut self, slot: Slot, keys: &[PageKey], edits: &mut Vec<TableEdit>) {
        for &key in keys {
            let page = self.published.as_ref().and_then(|published| published.find(key));
            self.adopt(slot, page.expect("it was found"), edits);
        }
    }

    /// Publishes the page number `index` of `slot`, in which all tokens have run, unless another of its key is.
    pub fn publish(&mut self, slot: Slot, index: usize, key: PageKey, generated: bool) {
        if let Some(published) = &mut self.published {
            published.publish(self.tables[slot.index()].pages[index], key, generated);
        }
    }

    /// Makes the pages of these keys the last to go, the first one last of all.
    pub fn touch(&mut self, keys: &[PageKey]) {
        let Some(published) = &mut self.published else { return };
        for &key in keys.iter().rev() {
            if let Some(page) = published.find(key) {
                published.touch(page);
            }
        }
    }

    /// Keeps the first `tokens` tokens of `slot` and gives back the pages behind them.
    pub fn truncate(&mut self, slot: Slot, tokens: u32, edits: &mut Vec<TableEdit>) {
        self.drop_pages(slot, tokens.div_ceil(self.block_tokens) as usize);
        edits.push(TableEdit::Truncate(slot, tokens));
    }

    /// Takes back all pages and reservations of `slot`.
    pub fn release(&mut self, slot: Slot) {
        self.drop_pages(slot, 0);
        self.edit(slot, |table| table.reserved = 0);
    }

    /// The pages of `slot`, in order of their tokens.
    pub fn pages(&self, slot: Slot) -> &[Page] {
        &self.tables[slot.index()].pages
    }

    /// Panics unless every page has as many references as holders, and is free or published if it has none. It takes as long
    /// as the pages that are held, so that an idle scheduler is checked at once.
    pub fn check(&self) {
        let mut holders: BTreeMap<Page, u32> = BTreeMap::new();
        for &page in self.tables.iter().flat_map(|table| &table.pages) {
            *holders.entry(page).or_default() += 1;
        }
        for (&page, &count) in &holders {
            assert_eq!(self.references[page.index()], count, "page {} is held by {count} tables", page.0);
        }
        assert_eq!(
            holders.len() + self.free_pages(),
            self.references.len(),
            "a page is neither free nor held, or both"
        );
        let promised: u64 = self.tables.iter().map(Table::promised).sum();
        assert_eq!(promised, self.promised, "reservations do not add up");
        if let Some(published) = &self.published {
            assert!(holders.keys().all(|&page| !published.is_unheld(page)), "a page that is held could be given up");
        }
    }

    /// The same, and that every key leads to its page: it takes as long as the whole pool.
    pub fn check_all(&self) {
        self.check();
        if let Some(published) = &self.published {
            published.check();
            assert!(self.free.iter().all(|&page| !published.has(page)), "a page that holds nothing can be found");
        }
    }

    /// Pages that no table holds.
    fn free_pages(&self) -> usize {
        self.free.len() + self.published.as_ref().map_or(0, Published::unheld)
    }

    /// Changes a table, and with it what is promised.
    fn edit(&mut self, slot: Slot, change: impl FnOnce(&mut Table)) {
        let table = &mut self.tables[slot.index()];
        let before = table.promised();
        change(table);
        self.promised = self.promised + table.promised() - before;
    }

    fn missing_pages(&self, slot: Slot, tokens: u32) -> usize {
        (tokens.div_ceil(self.block_tokens) as usize).saturating_sub(self.tables[slot.index()].pages.len())
    }

    /// Keeps the first `kept` pages of `slot`.
    fn drop_pages(&mut self, slot: Slot, kept: usize) {
        let table = &mut self.tables[slot.index()];
        let before = table.promised();
        for page in table.pages.drain(kept.min(table.pages.len())..) {
            let references = &mut self.references[page.index()];
            *references = references.checked_sub(1).expect("a page was released twice");
            let stays = *references == 0 && self.published.as_mut().is_some_and(|published| published.let_go(page));
            if *references == 0 && !stays {
                self.free.push(page);
            }
        }
        self.promised = self.promised + table.promised() - before;
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
