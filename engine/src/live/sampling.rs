//! Choosing a token: the largest logit, or the largest of logit over temperature plus Gumbel noise, which draws from the
//! softmax.
//!
//! The noise is a function of (seed, output token, id), so no schedule moves it, and a guess and its check that look at the
//! same output token draw alike. Every device makes the same noise, bit for bit: `+ - * /` in f32, in this order.

use crate::models::counter::{Stream, draw};
use crate::request::RequestId;
use crate::submission::Sampling;

/// The seed of a request's draws, where only the run has one.
pub(super) fn request_seed(run_seed: u64, request: RequestId) -> u64 {
    draw(run_seed, Stream::Sampling, u64::from(request.0), u64::MAX)
}

/// The id that output token number `token` gets of `logits`, one per id, and which is none of `banned`; `None` if a logit
/// is not finite. The seed is the request's own.
pub fn choose(logits: &[f32], sampling: &Sampling, token: u32, banned: &[u32]) -> Option<u32> {
    let best = argmax(logits.iter().copied())?;
    if banned.is_empty() {
        return Some(choose_of(logits, best, sampling, token));
    }
    let mut allowed = logits.to_vec();
    banned.iter().for_each(|&id| allowed[id as usize] = f32::NEG_INFINITY);
    let best = (0..).zip(&allowed).fold(0, |best, (id, &logit)| if logit > allowed[best as usize] { id } else { best });
    Some(choose_of(&allowed, best, sampling, token))
}

/// The same where `best` is the largest logit, and no logit is NaN or infinitely large.
fn choose_of(logits: &[f32], best: u32, sampling: &Sampling, token: u32) -> u32 {
    let Sampling { temperature, top_k, top_p, seed } = *sampling;
    if temperature == 0.0 {
        return best;
    }
    let (largest, inverse) = (logits[best as usize], 1.0 / temperature);
    let low = cut(logits, (top_k, top_p), |logit| ((logit - largest) * inverse).exp());
    let score = |(id, &logit): (usize, &f32)| {
        let noise = gumbel(seed, token, id as u32);
        if logit >= low { (logit - largest) * inverse + noise } else { f32::NEG_INFINITY }
    };
    // Noise is finite, and so is what is kept.
    let mut best = (0, f32::NEG_INFINITY);
    for (id, score) in logits.iter().enumerate().map(score).enumerate() {
        if score > best.1 {
            best = (id as u32, score);
        }
    }
    best.0
}

/// The smallest logit that is kept: of the k largest, and of those the fewest whose probability reaches p of theirs.
fn cut(logits: &[f32], (top_k, top_p): (u32, f32), weight: impl Fn(f32) -> f32) -> f32 {
    if top_k == 0 && top_p >= 1.0 {
        return f32::NEG_INFINITY;
    }
    let mut sorted = logits.to_vec();
    sorted.sort_unstable_by(|a, b| b.total_cmp(a));
    if let Some(&kth) = sorted.get((top_k as usize).wrapping_sub(1)) {
        // Equal logits stay together.
        sorted.truncate(sorted.partition_point(|&logit| logit >= kth));
    }
    if top_p < 1.0 {
        let total: f32 = sorted.iter().map(|&logit| weight(logit)).sum();
        let mut reached = 0.0;
        for &logit in &sorted {
            reached += weight(logit);
            if reached >= top_p * total {
                return logit;
            }
        }
    }
    sorted[sorted.len() - 1]
}

/// The first index of the largest, or `None` if one is not finite.
fn argmax(values: impl Iterator<Item = f32>) -> Option<u32> {
    let mut best = (0, f32::NEG_INFINITY);
    for (i, value) in values.enumerate() {
        if !value.is_finite() {
            return None;
        }
        if value > best.1 {
            best = (i as u32, value);
        }
    }
    Some(best.0)
}

/// Standard Gumbel noise, `-ln(-ln u)`, for a token id.
fn gumbel(seed: u64, token: u32, id: u32) -> f32 {
    let bits = draw(seed, Stream::Sampling, u64::from(token), u64::from(id));
    // An odd multiple of 2^-24 in (0, 1), exact in f32.
    let uniform = ((bits >> 41) * 2 + 1) as f32 * (1.0 / (1u32 << 24) as f32);
    -ln(-ln(uniform))
}

/// The natural logarithm of a positive normal number, to about an ulp, by 2 artanh((m - 1) / (m + 1)) of its mantissa.
fn ln(x: f32) -> f32 {
    let bits = x.to_bits();
    let mut exponent = (bits >> 23) as i32 - 127;
    let mut mantissa = f32::from_bits((bits & 0x007f_ffff) | 0x3f80_0000);
    if mantissa > std::f32::consts::SQRT_2 {
        mantissa *= 0.5;
        exponent += 1;
    }
    let s = (mantissa - 1.0) / (mantissa + 1.0);
    let z = s * s;
    let series = (((0.111_111_11 * z + 0.142_857_15) * z + 0.2) * z + 0.333_333_34) * z;
    let twice = 2.0 * s;
    exponent as f32 * std::f32::consts::LN_2 + (twice + twice * series)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(logits: &[f32], sampling: Sampling) -> Vec<f64> {
        let draws = 40_000;
        let mut counts = vec![0.0; logits.len()];
        (0..draws).for_each(|token| {
            counts[choose(logits, &sampling, token, &[]).unwrap() as usize] += 1.0 / f64::from(draws)
        });
        counts
    }

    #[test]
    fn draws_follow_the_softmax_of_what_is_kept() {
        let logits = [1.0, 3.0, 2.0, -1.0];
        let softmax = |kept: &[usize], temperature: f64| {
            let weight = |i: &usize| (f64::from(logits[*i]) / temperature).exp();
            let total: f64 = kept.iter().map(weight).sum();
            let mut shares = vec![0.0; 4];
            kept.iter().for_each(|i| shares[*i] = weight(i) / total);
            shares
        };
        let sampling = Sampling { temperature: 1.0, seed: 5, ..Sampling::GREEDY };
        let check = |sampling: Sampling, kept: &[usize]| {
            let expected = softmax(kept, f64::from(sampling.temperature));
            for (got, expected) in shares(&logits, sampling).iter().zip(expected) {
                assert!((got - expected).abs() < 0.01, "{sampling:?}: {got} instead of {expected}");
            }
        };
        check(sampling, &[0, 1, 2, 3]);
        check(Sampling { temperature: 0.5, ..sampling }, &[0, 1, 2, 3]);
        check(Sampling { top_k: 2, ..sampling }, &[1, 2]);
        // 0.66 and 0.24 of the probability: the first is not enough for 0.7.
        check(Sampling { top_p: 0.7, ..sampling }, &[1, 2]);
        check(Sampling { top_p: 0.5, ..sampling }, &[1]);
        // Of the three best, 0.67 and 0.24.
        check(Sampling { top_k: 3, top_p: 0.9, ..sampling }, &[1, 2]);
    }

    #[test]
    fn banned_ids_are_never_chosen_and_the_rest_as_if_they_were_not_there() {
        let logits = [1.0, 3.0, 2.0, -1.0];
        let settings = [
            Sampling::GREEDY,
            Sampling { temperature: 1.0, seed: 5, ..Sampling::GREEDY },
            Sampling { temperature: 0.8, top_k: 2, top_p: 0.9, seed: 6 },
            Sampling { temperature: 2.0, top_k: 4, seed: 7, ..Sampling::GREEDY },
        ];
        for banned in [&[1][..], &[1, 2], &[3, 0, 1, 1]] {
            let gone =
                logits.map(|logit| if banned.iter().any(|&id| logits[id as usize] == logit) { -1e4 } else { logit });
            for (sampling, token) in settings.iter().flat_map(|sampling| (0..500).map(move |token| (sampling, token))) {
                let id = choose(&logits, sampling, token, banned).unwrap();
                assert!(!banned.contains(&id), "{sampling:?} chose {id}");
                assert_eq!(Some(id), choose(&gone, sampling, token, &[]), "{sampling:?}, {banned:?}");
            }
        }
        assert_eq!(choose(&[0.5, f32::NAN, 2.0], &Sampling::GREEDY, 0, &[1]), None, "broken is broken");
    }

    #[test]
    fn zero_temperature_takes_the_largest_and_of_equal_ones_the_first() {
        assert_eq!(choose(&[0.5, 2.0, 2.0], &Sampling::GREEDY, 0, &[]), Some(1));
        assert_eq!(choose(&[0.5, f32::NAN, 2.0], &Sampling::GREEDY, 0, &[]), None);
        assert_eq!(choose(&[0.5, f32::INFINITY], &Sampling { temperature: 1.0, ..Sampling::GREEDY }, 0, &[]), None);
    }

    #[test]
    fn noise_is_gumbels_and_pinned_for_every_device() {
        let n = 100_000;
        let draws: Vec<f64> = (0..n).map(|id| f64::from(gumbel(7, 3, id))).collect();
        let mean = draws.iter().sum::<f64>() / f64::from(n);
        // Euler's constant, and a variance of pi^2 / 6.
        assert!((mean - 0.577_216).abs() < 0.02, "{mean}");
        let variance = draws.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / f64::from(n);
        assert!((variance - 1.644_934).abs() < 0.04, "{variance}");
        for x in [f32::MIN_POSITIVE, 5.9e-8, 0.3, 0.5, 0.999_999_94, 1.0, 16.6, 1e9] {
            assert!((f64::from(ln(x)) - f64::from(x).ln()).abs() <= 2e-7 * f64::from(x).ln().abs().max(1.0), "{x}");
        }
        let bits = [(0, 0), (0, 1), (1, 0), (4095, 49_151)].map(|(token, id)| gumbel(1, token, id).to_bits());
        assert_eq!(bits, PINNED, "a device that disagrees here draws other tokens");
    }

    /// Computed once; any device must give these.
    const PINNED: [u32; 4] = [1_065_035_737, 3_213_205_196, 1_065_765_144, 1_062_941_372];
}
