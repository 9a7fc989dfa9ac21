//! Randomness as a function of a counter: no state, so no order, chunk or schedule can change a draw.
//!
//! Integer arithmetic only, and one exact conversion to f32: a GPU computes the same bits.

/// What a draw is for; a stream shares no draw with another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Stream {
    /// Seeded weights.
    Weights = 1,
    /// Seeded prompts.
    Prompts = 2,
    /// Huginn's initial state.
    InitialState = 3,
    /// The noise that chooses tokens.
    Sampling = 4,
    /// Texts that seeded prompts have in common.
    Texts = 5,
}

/// 2^64 over the golden ratio: neighbouring counters land far apart.
pub const STRIDE: u64 = 0x9e37_79b9_7f4a_7c15;

/// 64 random bits for draw (`a`, `b`) of a stream.
pub fn draw(seed: u64, stream: Stream, a: u64, b: u64) -> u64 {
    let key = mix(seed ^ (stream as u64).wrapping_mul(STRIDE));
    mix(mix(key ^ a.wrapping_mul(STRIDE)).wrapping_add(b.wrapping_mul(STRIDE)))
}

/// A number in (-1/2, 1/2), symmetric and never zero: an odd multiple of 2^-25, exact in f32.
pub fn centred(bits: u64) -> f32 {
    let odd = ((bits >> 40) as i32) * 2 + 1 - (1 << 24);
    odd as f32 * (1.0 / (1u32 << 25) as f32)
}

/// A number in `0..bound`; the bias of at most `bound / 2^32` does not matter to prompts.
pub fn below(bits: u64, bound: u32) -> u32 {
    (((bits >> 32) * u64::from(bound)) >> 32) as u32
}

/// The finaliser of SplitMix64 (Steele, Lea and Flood 2014): every input bit flips half of the output bits.
#[inline]
pub fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn centred_numbers_are_uniform_and_never_zero() {
        let n = 100_000;
        let draws: Vec<f64> = (0..n).map(|i| f64::from(centred(draw(7, Stream::Weights, 3, i)))).collect();
        let mean = draws.iter().sum::<f64>() / n as f64;
        let variance = draws.iter().map(|x| x * x).sum::<f64>() / n as f64;
        assert!(draws.iter().all(|x| *x != 0.0 && x.abs() < 0.5));
        assert!(mean.abs() < 0.003, "mean {mean}");
        assert!((variance * 12.0 - 1.0).abs() < 0.02, "variance {variance}");
        assert_eq!((centred(0), centred(u64::MAX)), (-0.5 + 0.5f32.powi(25), 0.5 - 0.5f32.powi(25)));
    }

    #[test]
    fn streams_and_counters_differ() {
        let base = draw(1, Stream::Weights, 0, 0);
        for other in [
            draw(2, Stream::Weights, 0, 0),
            draw(1, Stream::Prompts, 0, 0),
            draw(1, Stream::Weights, 1, 0),
            draw(1, Stream::Weights, 0, 1),
        ] {
            assert_ne!(base, other);
        }
        assert_ne!(draw(1, Stream::Weights, 0, 1), draw(1, Stream::Weights, 1, 0));
    }
}
