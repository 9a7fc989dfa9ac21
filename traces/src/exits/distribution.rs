//! Exit depths drawn from a table, independent or correlated along a sequence, without any state.

use engine::models::counter::{STRIDE, mix};
use engine::request::RequestId;
use engine::units::Depth;

use crate::exits::table::{AliasTable, DepthTable};
use crate::numbers::Correlation;
use crate::streams::{self, Purpose};

/// Bits of a draw that decide whether a token keeps the depth before it.
const KEEP_BITS: u32 = 24;

/// A pure function of (seed, request, token): SplitMix64 read at position request * 2^32 + token.
///
/// With probability `correlation` a token keeps the depth of the token before it, else it draws anew from the table. The
/// decision is independent of the depths, so every token's depth has exactly the table's distribution, and depths that
/// lie k tokens apart have the correlation `correlation`^k. The first decoded token always draws.
#[derive(Clone, Debug)]
pub struct Distribution {
    alias: AliasTable,
    /// Draws whose low bits are below it keep the depth before.
    keep_below: u32,
    key: u64,
    mean_depth: f64,
}

impl Distribution {
    /// The depths of a seed.
    pub fn new(table: &DepthTable, correlation: Correlation, seed: u64) -> Self {
        Self {
            alias: AliasTable::new(table),
            keep_below: (correlation.get() * f64::from(1 << KEEP_BITS)).round() as u32,
            key: streams::key(seed, Purpose::Exits),
            mean_depth: table.mean_depth(),
        }
    }

    /// The table's mean depth, in loops.
    pub fn mean_depth(&self) -> f64 {
        self.mean_depth
    }

    /// Exit depth of output token `token >= 1`. Costs 1 / (1 - correlation) draws on average.
    #[inline]
    pub fn depth(&self, request: RequestId, token: u32) -> Depth {
        let mut index = u64::from(request.0) << 32 | u64::from(token);
        let first = u64::from(request.0) << 32 | 1;
        let mut bits = self.bits(index);
        // Walk back to the token that drew this depth.
        while self.keeps(bits) && index > first {
            index -= 1;
            bits = self.bits(index);
        }
        self.alias.depth(bits)
    }

    #[inline]
    fn bits(&self, index: u64) -> u64 {
        mix(self.key.wrapping_add(index.wrapping_mul(STRIDE)))
    }

    #[inline]
    fn keeps(&self, bits: u64) -> bool {
        ((bits & ((1 << KEEP_BITS) - 1)) as u32) < self.keep_below
    }
}
