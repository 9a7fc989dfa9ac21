//! What the host tells the device of a batch: one block of bytes in pinned memory, copied in one piece.
//!
//! Decode batches have their rows and items at fixed offsets, since captured graphs read them there.

use bytemuck::{Pod, Zeroable};

use super::memory::Pinned;
use crate::live::{self, Banned, Lane};
use crate::submission::Sampling;

/// Tokens of a decode attention work item; `SPLIT` in `attention_decode.cuh`.
pub const SPLIT: u32 = 128;
/// Queries of a prefill attention block; `QUERIES` in `attention_prefill.cu`.
pub(super) const QUERIES: u32 = 64;

/// A row as `common.cuh` declares it: slot, place, position, depth, and the input token or -1.
pub(super) type Row = [i32; 5];

/// `common.cuh`'s `Draw`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
pub(super) struct Draw {
    pub(super) seed: u64,
    pub(super) place: i32,
    pub(super) token: i32,
    pub(super) temperature: f32,
    pub(super) top_p: f32,
    pub(super) top_k: i32,
    pub(super) banned_at: i32,
}

/// The ids that some draws cannot have, as lists that are uploaded behind the draws.
#[derive(Debug)]
pub(super) struct BannedLists {
    /// From the first draw to the first list, in bytes.
    distance: usize,
    lists: Vec<[i32; Banned::MAX]>,
}

impl BannedLists {
    /// None yet.
    pub(super) fn new(distance: usize) -> Self {
        Self { distance, lists: Vec::new() }
    }

    /// A draw as the device reads it; adds its list if it has one.
    pub(super) fn draw(&mut self, draw: &live::Draw) -> Draw {
        let Sampling { temperature, top_k, top_p, seed } = draw.sampling;
        let (place, token) = (draw.place as i32, draw.token as i32);
        // More than the device can count is more than there are.
        let top_k = top_k.min(i32::MAX as u32) as i32;
        let banned = draw.banned.ids();
        let banned_at = match banned {
            [] => 0,
            _ => (self.distance + size_of_val(self.lists.as_slice())) as i32,
        };
        if !banned.is_empty() {
            self.lists.push(std::array::from_fn(|i| banned.get(i).map_or(-1, |&id| id as i32)));
        }
        Draw { seed, place, token, temperature, top_p, top_k, banned_at }
    }

    /// Adds the lists to an upload whose draws lie at `draws_at`.
    pub(super) fn put(&self, out: &mut Upload<'_>, draws_at: usize) {
        assert_eq!(out.put(&self.lists), draws_at + self.distance, "draws say where their lists lie");
    }
}

/// Offsets of a decode batch's parts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offsets {
    /// Rows that a batch can have.
    rows: usize,
}

impl Offsets {
    pub(super) fn new(rows: usize) -> Self {
        Self { rows }
    }

    pub(super) fn rows(self) -> usize {
        16
    }

    pub(super) fn draws(self) -> usize {
        (16 + size_of::<Row>() * self.rows).next_multiple_of(16)
    }

    pub(super) fn items(self) -> usize {
        self.draws() + size_of::<Draw>() * self.rows
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

/// Rows of decode.
pub(super) fn rows(lanes: &[Lane]) -> Vec<Row> {
    let row = |lane: &Lane| {
        let token = lane.token.map_or(-1, |token| token as i32);
        [lane.slot.0 as i32, lane.place as i32, lane.position as i32, i32::from(lane.depth.0), token]
    };
    lanes.iter().map(row).collect()
}

/// Work items of decode rows, `attention_decode.cuh`'s `Item`: row, split, the row's first item, the row's splits, and what it
/// needs of the row itself.
pub(super) fn items(lanes: &[Lane]) -> Vec<[i32; 8]> {
    let mut items = Vec::with_capacity(lanes.len());
    for (row, lane) in (0..).zip(lanes) {
        let (first, splits) = (items.len() as i32, (lane.position + 1).div_ceil(SPLIT) as i32);
        let [slot, position, depth] = [lane.slot.0 as i32, lane.position as i32, i32::from(lane.depth.0)];
        items.extend((0..splits).map(|split| [row, split, first, splits, slot, position, depth, lane.fresh as i32]));
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
    use crate::batch::Slot;
    use crate::request::RequestId;
    use crate::units::Depth;

    #[test]
    fn draws_say_where_the_ids_lie_that_they_cannot_have() {
        let draw = |top_k, ids: &[u32]| live::Draw {
            lane: 0,
            place: 3,
            token: 1,
            sampling: Sampling { top_k, ..Sampling::GREEDY },
            banned: Banned::new(ids).unwrap(),
        };
        let mut lists = BannedLists::new(96);
        let draws = [draw(0, &[]), draw(u32::MAX, &[7, 2]), draw(5, &[1; 8])].map(|draw| lists.draw(&draw));
        assert_eq!(draws.map(|draw| draw.banned_at), [0, 96, 96 + 32]);
        assert_eq!(draws.map(|draw| draw.top_k), [0, i32::MAX, 5]);
        assert_eq!(lists.lists, [[7, 2, -1, -1, -1, -1, -1, -1], [1; 8]]);
    }

    #[test]
    fn contexts_are_split_and_chunks_tiled() {
        let lane = |slot, position, depth| Lane {
            slot: Slot(slot),
            request: RequestId(slot),
            position,
            place: slot,
            depth: Depth(depth),
            token: None,
            fresh: position,
            leaves: true,
        };
        let expected = [[0, 0, 0, 1, 5, 0, 2, 0], [1, 0, 1, 2, 9, 128, 1, 128], [1, 1, 1, 2, 9, 128, 1, 128]];
        assert_eq!(items(&[lane(5, 0, 2), lane(9, 128, 1)]), expected);
        assert_eq!(tiles([(7, 10, 65), (3, 0, 2)].into_iter()), [[64, 1, 7, 74], [0, 64, 7, 10], [65, 2, 3, 0]]);
    }
}
