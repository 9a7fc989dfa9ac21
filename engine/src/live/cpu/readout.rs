//! What the logits after a loop say of leaving: numbers for [`crate::models::gate::Signal`]. Sums run in f64, in order.

/// Entropy of the logits' softmax, in nats. The released code adds 1e-10 to every probability before its logarithm, which
/// moves the sum by less than 1e-5.
pub(crate) fn entropy(logits: &[f32]) -> f32 {
    let of = Softmax::of(logits);
    let mean: f64 = logits.iter().map(|&logit| of.weight(logit) * of.below(logit)).sum();
    (of.sum.ln() - mean / of.sum) as f32
}

/// `KL(previous || current)` of the logits' softmaxes, in nats; without previous logits of the uniform distribution.
pub(crate) fn divergence(previous: Option<&[f32]>, current: &[f32]) -> f32 {
    let to = Softmax::of(current);
    let Some(previous) = previous else {
        let ids = current.len() as f64;
        let mean = current.iter().map(|&logit| to.below(logit)).sum::<f64>() / ids;
        return (to.sum.ln() - mean - ids.ln()) as f32;
    };
    let from = Softmax::of(previous);
    let moved = previous.iter().zip(current).map(|(&p, &c)| from.weight(p) * (from.below(p) - to.below(c)));
    (moved.sum::<f64>() / from.sum - from.sum.ln() + to.sum.ln()) as f32
}

/// The id of the largest logit, of equal ones the lowest.
pub(crate) fn argmax(logits: &[f32]) -> f32 {
    let larger = |best, (id, &logit)| if logit > logits[best] { id } else { best };
    logits.iter().enumerate().fold(0, larger) as f32
}

/// A softmax by the exponentials of its logits, each relative to the largest.
struct Softmax {
    largest: f32,
    sum: f64,
}

impl Softmax {
    fn of(logits: &[f32]) -> Self {
        let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let softmax = Self { largest, sum: 0.0 };
        Self { sum: logits.iter().map(|&logit| softmax.weight(logit)).sum(), ..softmax }
    }

    /// How far a logit lies below the largest, as a negative number.
    fn below(&self, logit: f32) -> f64 {
        f64::from(logit) - f64::from(self.largest)
    }

    fn weight(&self, logit: f32) -> f64 {
        self.below(logit).exp()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(got: f32, expected: f64) {
        assert!((f64::from(got) - expected).abs() < 1e-6, "{got}, not {expected}");
    }

    #[test]
    fn entropies_and_divergences_are_those_of_known_distributions() {
        // Probabilities 1/2, 1/4, 1/8, 1/8, and the same in another order, far from zero.
        let (p, q) = ([0.5_f32, 0.25, 0.125, 0.125].map(f32::ln), [0.25_f32, 0.125, 0.125, 0.5].map(|x| x.ln() + 90.0));
        let two = 2.0_f64.ln();
        close(entropy(&p), 1.75 * two);
        close(entropy(&[7.0; 512]), 512.0_f64.ln());
        close(entropy(&[0.0, 200.0, 0.0]), 0.0);
        close(divergence(None, &[7.0; 512]), 0.0);
        close(divergence(None, &p), 0.25 * two);
        close(divergence(Some(&p), &p), 0.0);
        assert!((divergence(Some(&p), &q) - (0.5 + 0.25 - 0.25) * 2.0_f32.ln()).abs() < 1e-4);
        assert!((divergence(Some(&q), &p) - (-0.25 - 0.125 + 1.0) * 2.0_f32.ln()).abs() < 1e-4, "it has a direction");
    }

    #[test]
    fn of_equal_logits_the_lowest_id_is_the_largest() {
        assert_eq!(argmax(&[1.0, 3.0, 3.0, -2.0]), 1.0);
        assert_eq!(argmax(&[-1.0]), 0.0);
    }
}
