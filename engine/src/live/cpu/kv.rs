//! Paged KV: a pool of blocks, each with the keys and values of a few tokens for every layer that shares the pool.

use super::element::Element;
use super::places::Place;

/// One pool: the core's (its blocks are shared out among the planes) or the boundary layers'.
///
/// Within a layer a block is `[K, V][head][token][dim]`, as on the GPU.
#[derive(Debug)]
pub(super) struct KvPool<E> {
    layers: usize,
    blocks: usize,
    block_tokens: usize,
    heads: usize,
    head_dim: usize,
    data: Vec<E>,
}

/// Sizes of a pool.
#[derive(Clone, Copy, Debug)]
pub(super) struct KvShape {
    pub(super) layers: usize,
    pub(super) blocks: usize,
    pub(super) block_tokens: usize,
    pub(super) heads: usize,
    pub(super) head_dim: usize,
}

/// A place as an offset within a layer, in tokens of one head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Address(usize);

impl<E: Element> KvPool<E> {
    pub(super) fn new(shape: KvShape) -> Self {
        let KvShape { layers, blocks, block_tokens, heads, head_dim } = shape;
        let numbers = layers * blocks * 2 * heads * block_tokens * head_dim;
        // Written now, since pages that the system hands out on first touch would make a run's first steps slow; and NaN, so
        // that KV which no token wrote cannot be read unnoticed.
        Self { layers, blocks, block_tokens, heads, head_dim, data: vec![E::narrow(f32::NAN); numbers] }
    }

    /// KV heads a token.
    pub(super) fn heads(&self) -> usize {
        self.heads
    }

    /// Panics if the pool has no such block.
    pub(super) fn address(&self, place: Place) -> Address {
        assert!((place.block as usize) < self.blocks, "block {} of {}", place.block, self.blocks);
        Address(place.block as usize * 2 * self.heads * self.block_tokens + place.offset as usize)
    }

    /// Stores a token's keys and values, `heads * head_dim` each; both are rounded already.
    pub(super) fn write(&mut self, layer: usize, address: Address, keys: &[f32], values: &[f32]) {
        let dim = self.head_dim;
        for (part, numbers) in [(Part::Keys, keys), (Part::Values, values)] {
            for (head, numbers) in numbers.chunks_exact(dim).enumerate() {
                let start = self.start(layer, address, part, head);
                let to = &mut self.data[start..start + dim];
                to.iter_mut().zip(numbers).for_each(|(to, &from)| *to = E::narrow(from));
            }
        }
    }

    /// One head's key or value of a token.
    pub(super) fn read(&self, layer: usize, address: Address, part: Part, head: usize) -> &[E] {
        let start = self.start(layer, address, part, head);
        &self.data[start..start + self.head_dim]
    }

    /// Copies one token, all layers and heads, to another place.
    pub(super) fn copy_token(&mut self, from: Address, to: Address) {
        let dim = self.head_dim;
        for layer in 0..self.layers {
            for part in [Part::Keys, Part::Values] {
                for head in 0..self.heads {
                    let (from, to) = (self.start(layer, from, part, head), self.start(layer, to, part, head));
                    self.data.copy_within(from..from + dim, to);
                }
            }
        }
    }

    /// The contents of a block, layer by layer.
    pub(super) fn save(&self, block: u32) -> Vec<E> {
        (0..self.layers).flat_map(|layer| &self.data[self.block_range(layer, block)]).copied().collect()
    }

    /// Puts saved contents into a block.
    pub(super) fn restore(&mut self, block: u32, saved: &[E]) {
        for layer in 0..self.layers {
            let range = self.block_range(layer, block);
            let length = range.len();
            self.data[range].copy_from_slice(&saved[layer * length..][..length]);
        }
    }

    fn block_range(&self, layer: usize, block: u32) -> std::ops::Range<usize> {
        let length = 2 * self.heads * self.block_tokens * self.head_dim;
        let start = (layer * self.blocks + block as usize) * length;
        start..start + length
    }

    fn start(&self, layer: usize, address: Address, part: Part, head: usize) -> usize {
        let tokens = self.heads * self.block_tokens;
        let layer = layer * self.blocks * 2 * tokens;
        (layer + address.0 + part as usize * tokens + head * self.block_tokens) * self.head_dim
    }
}

/// Half of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Keys = 0,
    Values = 1,
}
