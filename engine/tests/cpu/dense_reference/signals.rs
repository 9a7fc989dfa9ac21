//! What exit criteria look at, in f64 and by their definitions.

use super::Vector;

/// `|s_r - s_(r-1)| / |s_r|` after the last loop.
pub(crate) fn distance(states: &[Vector]) -> f64 {
    let [.., before, now] = states else { panic!("a distance needs two states") };
    let length = |v: &mut dyn Iterator<Item = f64>| v.map(|x| x * x).sum::<f64>().sqrt();
    length(&mut now.iter().zip(before).map(|(s, p)| s - p)) / length(&mut now.iter().copied())
}

/// The entropy of a softmax, in nats.
pub(crate) fn entropy(logits: &[f64]) -> f64 {
    -probabilities(logits).iter().map(|p| p * p.ln()).sum::<f64>()
}

/// `KL(previous || current)` of two softmaxes, in nats; before the first loop stands the uniform distribution.
pub(crate) fn divergence(previous: Option<&Vector>, current: &[f64]) -> f64 {
    let uniform = vec![0.0; current.len()];
    let (from, to) = (probabilities(previous.unwrap_or(&uniform)), probabilities(current));
    from.iter().zip(to).map(|(p, q)| p * (p / q).ln()).sum()
}

/// The index of the largest, of equal ones the lowest.
pub(crate) fn argmax(logits: &[f64]) -> usize {
    let mut best = 0;
    for (i, logit) in logits.iter().enumerate() {
        if *logit > logits[best] {
            best = i;
        }
    }
    best
}

fn probabilities(logits: &[f64]) -> Vector {
    let largest = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let weights: Vector = logits.iter().map(|logit| (logit - largest).exp()).collect();
    let sum: f64 = weights.iter().sum();
    weights.iter().map(|weight| weight / sum).collect()
}
