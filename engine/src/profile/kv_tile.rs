//! Attention that reads KV tile by tile: a tile that a row has only begun takes part of a whole one's time.

use serde::{Deserialize, Serialize};

/// The tiles, and what the missing part of a row's last one costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KvTile {
    /// KV entries of a tile; 0 for a device without tiles.
    pub tokens: u32,
    /// Time of a missing entry as a share of a real one's.
    pub share: f64,
}

impl KvTile {
    /// `N_c`: the entries that rows read, with their share of those that their last tiles lack.
    pub fn entries(self, contexts: impl IntoIterator<Item = u32>) -> u64 {
        let (mut read, mut missing) = (0, 0);
        for context in contexts {
            read += u64::from(context);
            if self.tokens > 0 {
                missing += u64::from(context).next_multiple_of(self.tokens.into()) - u64::from(context);
            }
        }
        read + (self.share * missing as f64).round() as u64
    }

    /// Only what is read counts.
    pub fn is_exact(&self) -> bool {
        self.tokens == 0 || self.share == 0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_begun_tile_costs_part_of_a_whole_one() {
        let tile = KvTile { tokens: 128, share: 0.5 };
        assert_eq!(tile.entries([128, 192, 1]), 128 + (192 + 32) + (1 + 64));
        assert_eq!(KvTile::default().entries([128, 192, 1]), 321);
        let huge = KvTile { tokens: u32::MAX - 1, share: 1.0 };
        assert_eq!(huge.entries([u32::MAX]), 2 * u64::from(u32::MAX - 1));
    }
}
