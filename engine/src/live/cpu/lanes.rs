//! The tokens that run together: where each writes its KV, and what it attends to.

use super::element::Element;
use super::kv::{Address, KvPool};
use super::places::Places;
use crate::live::Lane as Token;
use crate::units::Depth;

/// Which KV a pass over layers works on.
#[derive(Clone, Copy, Debug)]
pub(super) enum Region<'a> {
    /// The prelude's and coda's layers.
    Boundary,
    /// The core, each token at its own depth.
    Core(&'a [Depth]),
}

/// Tokens with their KV addresses: one lane a row of activations.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    lanes: Vec<Lane>,
    /// Addresses by position, one list for every run of tokens of one sequence and depth.
    contexts: Vec<Vec<Address>>,
}

/// One token.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lane {
    pub(super) position: u32,
    pub(super) write: Address,
    context: usize,
}

impl Lanes {
    /// Lanes of `tokens`, in order. A core pass notes the depth that each token runs at.
    pub(super) fn new<E: Element>(places: &mut Places, pool: &KvPool<E>, tokens: &[Token], region: Region<'_>) -> Self {
        if let Region::Core(depths) = region {
            // All first: a chunk's tokens attend to each other at the loop that they are all in.
            for (token, &depth) in tokens.iter().zip(depths) {
                places.mark(token.slot, token.position, depth);
            }
        }
        let depth = |i: usize| match region {
            Region::Boundary => None,
            Region::Core(depths) => Some(depths[i]),
        };
        let mut lanes = Vec::with_capacity(tokens.len());
        let mut contexts = Vec::new();
        let mut first = 0;
        while first < tokens.len() {
            let slot = tokens[first].slot;
            let same = |i: &usize| tokens[*i].slot == slot && depth(*i) == depth(first);
            let end = (first..tokens.len()).take_while(same).count() + first;
            let length = tokens[first..end].iter().map(|token| token.position + 1).max().unwrap_or(0);
            let context: Vec<Address> = match depth(first) {
                None => places.boundary_places(slot, length).map(|place| pool.address(place)).collect(),
                Some(depth) => places.core_reads(slot, depth, length).map(|place| pool.address(place)).collect(),
            };
            lanes.extend(tokens[first..end].iter().map(|token| Lane {
                position: token.position,
                write: context[token.position as usize],
                context: contexts.len(),
            }));
            contexts.push(context);
            first = end;
        }
        Self { lanes, contexts }
    }

    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = &Lane> {
        self.lanes.iter()
    }

    pub(super) fn lane(&self, row: usize) -> &Lane {
        &self.lanes[row]
    }

    /// What a lane attends to: every position up to its own.
    pub(super) fn context(&self, lane: &Lane) -> &[Address] {
        &self.contexts[lane.context][..=lane.position as usize]
    }

    /// Addresses that all lanes read together.
    pub(super) fn context_tokens(&self) -> usize {
        self.lanes.iter().map(|lane| lane.position as usize + 1).sum()
    }
}
