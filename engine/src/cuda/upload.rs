//! What the host tells the device of a batch: one block of bytes in pinned memory, copied in one piece.
//!
//! Decode batches have their rows and items at fixed offsets, since captured graphs read them there.

use bytemuck::Pod;

use super::memory::Pinned;

/// Tokens of a decode attention work item; `SPLIT` in `attention_decode.cu`.
pub const SPLIT: u32 = 128;
/// Queries of a prefill attention block; `QUERIES` in `attention_prefill.cu`.
pub(super) const QUERIES: u32 = 64;

/// Offsets of a decode batch's parts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Places {
    slots: usize,
}

impl Places {
    pub(super) fn new(slots: usize) -> Self {
        Self { slots }
    }

    pub(super) fn rows(self) -> usize {
        16
    }

    pub(super) fn keys(self) -> usize {
        16 + 16 * self.slots
    }

    pub(super) fn items(self) -> usize {
        (16 + 24 * self.slots).next_multiple_of(16)
    }
}

/// Fills pinned memory from the front.
pub(super) struct Upload<'a> {
    to: &'a mut [u8],
    end: usize,
}

impl<'a> Upload<'a> {
    /// Leaves room for the header.
    pub(super) fn new(to: &'a mut Pinned) -> Self {
        Self { to: to.bytes_mut(), end: 16 }
    }

    /// Goes on at `offset`.
    pub(super) fn seek(&mut self, offset: usize) {
        assert!(offset >= self.end, "parts of an upload lie in order");
        self.end = offset;
    }

    /// Adds values and gives their offset. Panics if they do not fit: capacities are computed from the pool.
    pub(super) fn put<T: Pod>(&mut self, values: &[T]) -> usize {
        let offset = self.end.next_multiple_of(16);
        let bytes: &[u8] = bytemuck::cast_slice(values);
        self.to[offset..offset + bytes.len()].copy_from_slice(bytes);
        self.end = offset + bytes.len();
        offset
    }

    /// Writes the header and gives the length of it all.
    pub(super) fn finish(self, rows: usize, items: usize, appended: usize, appended_at: usize) -> usize {
        let header = [rows as i32, items as i32, appended as i32, appended_at as i32];
        self.to[..16].copy_from_slice(bytemuck::cast_slice(&header));
        self.end
    }
}

/// Work items of decode rows (slot, position, depth), `attention_decode.cu`'s `Item`: row, split, the row's first item, the
/// row's splits, and the row itself.
pub(super) fn items(rows: impl Iterator<Item = (u32, u32, u8)>) -> Vec<[i32; 8]> {
    let mut items = Vec::new();
    for (row, (slot, position, depth)) in rows.enumerate() {
        let (first, splits) = (items.len() as i32, (position + 1).div_ceil(SPLIT) as i32);
        let item = |split| [row as i32, split, first, splits, slot as i32, position as i32, i32::from(depth), 0];
        items.extend((0..splits).map(item));
    }
    items
}

/// Query tiles of packed chunks (slot, position, tokens): first token, tokens, slot, position.
pub(super) fn tiles(chunks: impl Iterator<Item = (u32, u32, u32)>) -> Vec<[i32; 4]> {
    let mut tiles = Vec::new();
    let mut first = 0;
    for (slot, position, tokens) in chunks {
        for at in (0..tokens).step_by(QUERIES as usize) {
            let here = (tokens - at).min(QUERIES);
            tiles.push([(first + at) as i32, here as i32, slot as i32, (position + at) as i32]);
        }
        first += tokens;
    }
    // The longest first, so that no long tile starts when everything else is done.
    tiles.sort_by_key(|tile| std::cmp::Reverse(tile[3] + tile[1]));
    tiles
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_are_split_and_chunks_tiled() {
        let rows = [(5, 0, 2), (9, 128, 1)].into_iter();
        let expected = [[0, 0, 0, 1, 5, 0, 2, 0], [1, 0, 1, 2, 9, 128, 1, 0], [1, 1, 1, 2, 9, 128, 1, 0]];
        assert_eq!(items(rows), expected);
        assert_eq!(tiles([(7, 10, 65), (3, 0, 2)].into_iter()), [[64, 1, 7, 74], [0, 64, 7, 10], [65, 2, 3, 0]]);
    }
}
