//! Rotary positions: Ouro turns halves (i, i + dim/2) with rounded factors, Huginn pairs (2i, 2i + 1) in f32.

use super::element::Element;
use crate::architecture::Family;

/// Cosines and sines by position, computed when a position is first used.
#[derive(Debug)]
pub(super) struct Rope<E> {
    family: Family,
    head_dim: usize,
    /// By position, then frequency: (cos, sin).
    factors: Vec<(f32, f32)>,
    element: std::marker::PhantomData<E>,
}

impl<E: Element> Rope<E> {
    pub(super) fn new(family: Family, head_dim: usize) -> Self {
        Self { family, head_dim, factors: Vec::new(), element: std::marker::PhantomData }
    }

    /// Makes sure that positions below `positions` are known.
    ///
    /// Frequencies and angles are f32, as the released models compute them.
    pub(super) fn grow(&mut self, positions: u32) {
        let pairs = self.head_dim / 2;
        let base = self.family.rope_base();
        for position in self.factors.len() / pairs..positions as usize {
            for pair in 0..pairs {
                let frequency = (1.0 / libm::pow(base, (2 * pair) as f64 / self.head_dim as f64)) as f32;
                let angle = f64::from(position as f32 * frequency);
                let (cos, sin) = (libm::cos(angle) as f32, libm::sin(angle) as f32);
                self.factors.push(match self.family {
                    Family::Ouro => (E::round(cos), E::round(sin)),
                    Family::Huginn => (cos, sin),
                });
            }
        }
    }

    /// Numbers a head.
    pub(super) fn head_dim(&self) -> usize {
        self.head_dim
    }

    /// Turns one head's query or key in place.
    pub(super) fn rotate(&self, position: u32, head: &mut [f32]) {
        let pairs = self.head_dim / 2;
        let factors = &self.factors[position as usize * pairs..][..pairs];
        match self.family {
            Family::Ouro => {
                let (low, high) = head.split_at_mut(pairs);
                for ((low, high), &(cos, sin)) in low.iter_mut().zip(high).zip(factors) {
                    let (a, b) = (*low, *high);
                    *low = E::round(E::round(a * cos) + E::round(-b * sin));
                    *high = E::round(E::round(b * cos) + E::round(a * sin));
                }
            }
            Family::Huginn => {
                for (pair, &(cos, sin)) in head.chunks_exact_mut(2).zip(factors) {
                    let (a, b) = (pair[0], pair[1]);
                    pair[0] = E::round(a * cos - b * sin);
                    pair[1] = E::round(b * cos + a * sin);
                }
            }
        }
    }
}

/// The factors (cos, sin) of bf16 models for positions below `positions`, by position, then frequency: a GPU reads the
/// same numbers.
#[cfg(feature = "cuda")]
pub(crate) fn factors(family: Family, head_dim: usize, positions: u32) -> Vec<[f32; 2]> {
    let mut rope = Rope::<half::bf16>::new(family, head_dim);
    rope.grow(positions);
    rope.factors.into_iter().map(|(cos, sin)| [cos, sin]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rotated(family: Family, position: u32, mut head: [f32; 4]) -> [f32; 4] {
        let mut rope = Rope::<f32>::new(family, 4);
        rope.grow(position + 1);
        rope.rotate(position, &mut head);
        head
    }

    #[test]
    fn families_pair_other_channels() {
        let (cos, sin) = (1f32.cos(), 1f32.sin());
        assert_eq!(rotated(Family::Ouro, 1, [1.0, 0.0, 0.0, 0.0]), [cos, 0.0, sin, 0.0]);
        assert_eq!(rotated(Family::Huginn, 1, [1.0, 0.0, 0.0, 0.0]), [cos, sin, 0.0, 0.0]);
        assert_eq!(rotated(Family::Ouro, 0, [1.0, 2.0, 3.0, 4.0]), [1.0, 2.0, 3.0, 4.0]);
    }

    #[test]
    fn a_product_depends_on_the_distance_alone() {
        let dot = |a: [f32; 4], b: [f32; 4]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
        for family in [Family::Ouro, Family::Huginn] {
            let (q, k) = ([0.3, -0.7, 1.1, 0.2], [0.9, 0.4, -0.5, 0.8]);
            let near = dot(rotated(family, 9, q), rotated(family, 4, k));
            let far = dot(rotated(family, 105, q), rotated(family, 100, k));
            assert!((near - far).abs() < 1e-5, "{near} {far}");
        }
    }
}
