//! `hash_ids`: one number for each block of a prompt, the same wherever the same tokens stand behind the same beginning. Traces do
//! not say how many tokens a block has; their lengths do.

use engine::content::{Piece, Text};

/// Block sizes that traces are known to have, in the order in which they are taken where several fit.
const KNOWN: [u64; 4] = [512, 16, 64, 256];

/// The block sizes that fit what was seen: from `least` on and below `end`.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockTokens {
    least: u64,
    end: u64,
}

impl Default for BlockTokens {
    fn default() -> Self {
        Self { least: 1, end: u64::MAX }
    }
}

impl BlockTokens {
    /// Sees a prompt of so many tokens and blocks, the last of which may be begun.
    pub(super) fn see(&mut self, prompt_tokens: u64, blocks: u64) {
        if prompt_tokens > 0 && blocks > 0 {
            self.least = self.least.max(prompt_tokens.div_ceil(blocks));
        }
        if prompt_tokens > 0 && blocks > 1 {
            self.end = self.end.min(prompt_tokens.div_ceil(blocks - 1));
        }
    }

    /// The tokens of a block, or none if no size fits all prompts.
    pub(super) fn told(self) -> Option<u32> {
        let fits = |size: &u64| (self.least..self.end).contains(size);
        let powers = (0..20).map(|power| 1 << power);
        KNOWN.into_iter().chain(powers).find(fits).or((self.least < self.end).then_some(self.least))?.try_into().ok()
    }
}

/// The pieces of a prompt.
pub(super) fn pieces(ids: &[u64], prompt_tokens: u32, block_tokens: u32) -> impl Iterator<Item = Piece> {
    let left = move |index: u32| prompt_tokens.saturating_sub(index.saturating_mul(block_tokens)).min(block_tokens);
    let piece = move |(index, &id)| Piece::start(Text::Written(id), left(index));
    (0..).zip(ids).map(piece).filter(|piece| piece.count > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(seen: &[(u64, u64)]) -> Option<u32> {
        let mut size = BlockTokens::default();
        seen.iter().for_each(|&(tokens, blocks)| size.see(tokens, blocks));
        size.told()
    }

    #[test]
    fn lengths_tell_the_size_of_a_block() {
        assert_eq!(told(&[(6758, 14), (7322, 15)]), Some(512));
        assert_eq!(told(&[(33, 3), (16, 1)]), Some(16));
        assert_eq!(told(&[(10, 1)]), Some(512));
        assert_eq!(told(&[(300, 3), (299, 3)]), Some(128));
        assert_eq!(told(&[(300, 3), (100, 3)]), None);
        assert_eq!(told(&[]), Some(512));
    }

    #[test]
    fn the_last_block_may_be_begun() {
        let counts: Vec<u32> = pieces(&[7, 8, 9, 10], 1100, 512).map(|piece| piece.count).collect();
        assert_eq!(counts, [512, 512, 76]);
    }
}
