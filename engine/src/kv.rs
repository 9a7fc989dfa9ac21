//! Paged KV: one block pool for the core's planes, one for the boundary layers, and a block table per
//! (sequence, plane). Sizes only; the bytes live in the executors, which mirror the tables.

use crate::batch::{AppendedBlock, Plane, Slot};

/// Free blocks, last released first.
#[derive(Clone, Debug)]
struct BlockPool {
    free: Vec<u32>,
    total: u32,
}

impl BlockPool {
    fn new(total: u32) -> Self {
        Self { free: (0..total).rev().collect(), total }
    }

    fn release(&mut self, blocks: &mut Vec<u32>) {
        self.free.append(blocks);
        assert!(self.free.len() <= self.total as usize, "a block was released twice");
    }
}

/// The tables of one resident sequence.
#[derive(Clone, Debug, Default)]
struct Tables {
    planes: Vec<Vec<u32>>,
    boundary: Vec<u32>,
    reserved: u64,
}

/// The scheduler's side of the KV cache.
#[derive(Clone, Debug)]
pub struct KvCache {
    core: BlockPool,
    /// Present if the model has layers outside the loop. A sequence holds as many boundary blocks as blocks in one
    /// plane, so a pool of `core / planes` blocks never runs out before the core's.
    boundary: Option<BlockPool>,
    tables: Vec<Tables>,
    planes: u8,
    block_tokens: u32,
    reserved: u64,
}

impl KvCache {
    /// `blocks` blocks of `block_tokens` tokens of one core plane each, for up to `slots` sequences.
    pub fn new(blocks: u32, block_tokens: u32, planes: u8, boundary: bool, slots: u32) -> Self {
        assert!(block_tokens > 0 && planes > 0, "a block holds at least one token of one plane");
        let tables = Tables { planes: vec![Vec::new(); usize::from(planes)], ..Tables::default() };
        Self {
            core: BlockPool::new(blocks),
            boundary: boundary.then(|| BlockPool::new(blocks / u32::from(planes))),
            tables: vec![tables; slots as usize],
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
        u64::from(self.core.total)
    }

    /// Core blocks that no sequence holds.
    pub fn free_blocks(&self) -> u64 {
        self.core.free.len() as u64
    }

    /// Core blocks that sequences hold.
    pub fn used_blocks(&self) -> u64 {
        self.total_blocks() - self.free_blocks()
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
        let held = self.tables[slot.index()].planes[0].len() as u32;
        u64::from(tokens.div_ceil(self.block_tokens).saturating_sub(held)) * u64::from(self.planes)
    }

    /// Grows all tables of `slot` to hold `tokens` tokens, or changes nothing and returns false.
    pub fn grow(&mut self, slot: Slot, tokens: u32, appended: &mut Vec<AppendedBlock>) -> bool {
        let tables = &mut self.tables[slot.index()];
        let held = tables.planes[0].len() as u32;
        let missing = tokens.div_ceil(self.block_tokens).saturating_sub(held);
        if missing == 0 {
            return true;
        }
        if u64::from(missing) * u64::from(self.planes) > self.core.free.len() as u64 {
            return false;
        }
        for _ in 0..missing {
            for (plane, table) in tables.planes.iter_mut().enumerate() {
                let block = self.core.free.pop().expect("counted above");
                table.push(block);
                appended.push(AppendedBlock { slot, plane: Plane::Core(plane as u8), block });
            }
            if let Some(pool) = &mut self.boundary {
                let block = pool.free.pop().expect("the boundary pool is as deep as a core plane");
                tables.boundary.push(block);
                appended.push(AppendedBlock { slot, plane: Plane::Boundary, block });
            }
        }
        true
    }

    /// Takes back all blocks and reservations of `slot`.
    pub fn release(&mut self, slot: Slot) {
        let tables = &mut self.tables[slot.index()];
        for table in &mut tables.planes {
            self.core.release(table);
        }
        if let Some(pool) = &mut self.boundary {
            pool.release(&mut tables.boundary);
        }
        self.reserved -= std::mem::take(&mut tables.reserved);
    }

    /// Panics unless free and held blocks add up to the pool, each block once.
    pub fn check(&self) {
        let held = self.tables.iter().flat_map(|tables| tables.planes.iter().flatten());
        check_pool(&self.core, held, "core");
        if let Some(pool) = &self.boundary {
            check_pool(pool, self.tables.iter().flat_map(|tables| &tables.boundary), "boundary");
        }
        let reserved: u64 = self.tables.iter().map(|tables| tables.reserved).sum();
        assert_eq!(reserved, self.reserved, "reservations do not add up");
    }
}

fn check_pool<'a>(pool: &'a BlockPool, held: impl Iterator<Item = &'a u32>, name: &str) {
    let mut seen = vec![false; pool.total as usize];
    for &block in pool.free.iter().chain(held) {
        assert!(!std::mem::replace(&mut seen[block as usize], true), "{name} block {block} is in two places");
    }
    assert!(seen.iter().all(|&seen| seen), "a {name} block is neither free nor held");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growing_is_all_or_nothing() {
        let mut kv = KvCache::new(5, 16, 2, true, 2);
        let mut appended = Vec::new();
        assert!(kv.grow(Slot(0), 17, &mut appended));
        assert_eq!((kv.free_blocks(), appended.len()), (1, 6));
        assert!(!kv.grow(Slot(1), 1, &mut appended));
        assert_eq!((kv.free_blocks(), appended.len()), (1, 6));
        kv.check();
        kv.release(Slot(0));
        assert_eq!(kv.free_blocks(), 5);
        kv.check();
    }
}
