//! Published pages: which page holds which tokens, and which of those that no table holds goes first.
//!
//! A page is published once all its tokens have run, and is never written again. It stays when its last holder lets go,
//! until its room is needed: then the page that was let go longest ago goes, of one chain the deepest.

use fnv::FnvHashMap;

use crate::batch::Page;
use crate::content::PageKey;

/// What one published page is.
#[derive(Clone, Copy, Debug)]
struct Entry {
    key: PageKey,
    /// It holds output tokens, which may have left the loop early.
    generated: bool,
}

/// The published pages of a pool.
#[derive(Clone, Debug)]
pub(crate) struct Published {
    by_key: FnvHashMap<PageKey, Page>,
    /// By page.
    entries: Vec<Option<Entry>>,
    /// Those that no table holds.
    unheld: Recency,
    evicted: u64,
}

impl Published {
    /// None yet, in a pool of `pages` pages.
    pub(crate) fn new(pages: u32) -> Self {
        Self {
            by_key: FnvHashMap::default(),
            entries: vec![None; pages as usize],
            unheld: Recency::new(pages),
            evicted: 0,
        }
    }

    /// The page of a key.
    pub(crate) fn find(&self, key: PageKey) -> Option<Page> {
        self.by_key.get(&key).copied()
    }

    /// Whether a page is published.
    pub(crate) fn has(&self, page: Page) -> bool {
        self.entries[page.index()].is_some()
    }

    /// Whether a published page holds output tokens.
    pub(crate) fn is_generated(&self, page: Page) -> bool {
        self.entries[page.index()].is_some_and(|entry| entry.generated)
    }

    /// Publishes a page that a table holds, unless there is one of its key or it is published already.
    pub(crate) fn publish(&mut self, page: Page, key: PageKey, generated: bool) {
        let entry = &mut self.entries[page.index()];
        if entry.is_none() && !self.by_key.contains_key(&key) {
            *entry = Some(Entry { key, generated });
            self.by_key.insert(key, page);
        }
    }

    /// Notes that the last table has let go of a page, and says whether it stays.
    pub(crate) fn let_go(&mut self, page: Page) -> bool {
        let stays = self.has(page);
        if stays {
            self.unheld.push(page);
        }
        stays
    }

    /// Notes that a table holds a page that none held.
    pub(crate) fn take(&mut self, page: Page) {
        self.unheld.remove(page);
    }

    /// Makes a page the last to go, if no table holds it.
    pub(crate) fn touch(&mut self, page: Page) {
        if self.unheld.contains(page) {
            self.unheld.remove(page);
            self.unheld.push(page);
        }
    }

    /// Gives up the page that no table has held for longest.
    pub(crate) fn evict(&mut self) -> Option<Page> {
        let page = self.unheld.oldest()?;
        self.unheld.remove(page);
        let entry = self.entries[page.index()].take().expect("a page that is kept is published");
        self.by_key.remove(&entry.key);
        self.evicted += 1;
        Some(page)
    }

    /// Published pages that no table holds.
    pub(crate) fn unheld(&self) -> usize {
        self.unheld.len
    }

    /// Whether no table holds this published page.
    pub(crate) fn is_unheld(&self, page: Page) -> bool {
        self.unheld.contains(page)
    }

    /// Pages that were given up so far.
    pub(crate) fn evicted(&self) -> u64 {
        self.evicted
    }

    /// Panics unless every key leads to the page that has it.
    pub(crate) fn check(&self) {
        let published = self.entries.iter().flatten().count();
        assert_eq!(published, self.by_key.len(), "a published page has no key, or two");
        for (at, entry) in self.entries.iter().enumerate() {
            let Some(entry) = entry else { continue };
            assert_eq!(self.find(entry.key), Some(Page(at as u32)), "a key leads to another page");
        }
    }
}

/// Pages in the order in which they were let go: a list threaded through an array, so every change takes the same time.
#[derive(Clone, Debug)]
struct Recency {
    /// By page, its neighbours; the last entry is both ends. A page that is not in the list is its own neighbour.
    older: Vec<u32>,
    newer: Vec<u32>,
    len: usize,
}

impl Recency {
    fn new(pages: u32) -> Self {
        Self { older: (0..=pages).collect(), newer: (0..=pages).collect(), len: 0 }
    }

    fn ends(&self) -> usize {
        self.older.len() - 1
    }

    fn oldest(&self) -> Option<Page> {
        (self.len > 0).then(|| Page(self.newer[self.ends()]))
    }

    fn contains(&self, page: Page) -> bool {
        self.newer[page.index()] != page.0
    }

    /// Adds a page as the newest.
    fn push(&mut self, page: Page) {
        assert!(!self.contains(page), "page {} was let go twice", page.0);
        let ends = self.ends();
        let before = std::mem::replace(&mut self.older[ends], page.0);
        self.newer[before as usize] = page.0;
        self.older[page.index()] = before;
        self.newer[page.index()] = ends as u32;
        self.len += 1;
    }

    fn remove(&mut self, page: Page) {
        assert!(self.contains(page), "page {} is held", page.0);
        let (older, newer) = (self.older[page.index()], self.newer[page.index()]);
        self.newer[older as usize] = newer;
        self.older[newer as usize] = older;
        self.older[page.index()] = page.0;
        self.newer[page.index()] = page.0;
        self.len -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Layout;

    #[test]
    fn the_page_that_was_let_go_longest_ago_goes_first() {
        let mut published = Published::new(4);
        let key = |seed| PageKey::root("m", Layout::Shared, Some(seed));
        (0..3).for_each(|page| published.publish(Page(page), key(page.into()), false));
        published.publish(Page(3), key(0), false);
        assert!(!published.let_go(Page(3)), "its key had a page already");
        assert!([1, 0, 2].iter().all(|&page| published.let_go(Page(page))));
        published.touch(Page(1));
        published.take(Page(2));
        assert_eq!((published.evict(), published.unheld()), (Some(Page(0)), 1));
        assert_eq!((published.find(key(0)), published.find(key(2))), (None, Some(Page(2))));
        published.check();
        assert_eq!((published.evict(), published.evict(), published.evicted()), (Some(Page(1)), None, 2));
        published.check();
    }
}
