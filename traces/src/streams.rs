//! Named random streams: one per purpose, so that adding a draw in one moves no other.

use engine::models::counter::{STRIDE, mix};
use rand_pcg::Pcg64;

/// What a stream of random numbers is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The gaps between arrivals.
    Arrivals = 1,
    /// Prompt and output lengths.
    Lengths = 2,
    /// Exit depths.
    Exits = 3,
    /// Who begins with which shared prefix.
    Prefixes = 4,
}

/// The stream of a purpose.
///
/// PCG streams of one state are correlated, so the state depends on the purpose as well.
pub fn stream(seed: u64, purpose: Purpose) -> Pcg64 {
    let state = u128::from(key(seed, purpose)) << 64 | u128::from(mix(seed));
    Pcg64::new(state, purpose as u128)
}

/// A 64-bit key of a seed and a purpose, for draws that are computed from a counter.
pub fn key(seed: u64, purpose: Purpose) -> u64 {
    mix(mix(seed).wrapping_add((purpose as u64).wrapping_mul(STRIDE)))
}

#[cfg(test)]
mod tests {
    use rand::Rng;

    use super::*;

    #[test]
    fn streams_differ_by_seed_and_purpose_and_repeat() {
        let first = |seed, purpose| stream(seed, purpose).next_u64();
        assert_eq!(first(7, Purpose::Lengths), first(7, Purpose::Lengths));
        assert_ne!(first(7, Purpose::Lengths), first(7, Purpose::Arrivals));
        assert_ne!(first(7, Purpose::Lengths), first(8, Purpose::Lengths));
    }
}
