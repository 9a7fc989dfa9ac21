//! Turning heads by their positions, with the numbers of [`crate::models::rope`].

use std::marker::PhantomData;

use super::element::Element;
use crate::architecture::Architecture;
use crate::models::rope::{self, RopeForm};

/// Cosines and sines by position, computed when a position is first used.
#[derive(Debug)]
pub(super) struct Rope<E> {
    rope: rope::Rope,
    /// By position, then pair: (cos, sin).
    factors: Vec<(f32, f32)>,
    element: PhantomData<E>,
}

impl<E: Element> Rope<E> {
    pub(super) fn new(architecture: &Architecture) -> Self {
        Self { rope: rope::Rope::new(architecture), factors: Vec::new(), element: PhantomData }
    }

    /// Makes sure that positions below `positions` are known.
    pub(super) fn grow(&mut self, positions: u32) {
        for position in (self.factors.len() / self.rope.pairs()) as u32..positions {
            self.factors.extend(self.rope.factors(position).map(|(cos, sin)| match self.rope.form() {
                RopeForm::Halves => (E::round(cos), E::round(sin)),
                RopeForm::Neighbours => (cos, sin),
            }));
        }
    }

    /// Numbers a head.
    pub(super) fn head_dim(&self) -> usize {
        2 * self.rope.pairs()
    }

    /// Turns one head's query or key in place.
    pub(super) fn rotate(&self, position: u32, head: &mut [f32]) {
        let pairs = self.rope.pairs();
        let factors = &self.factors[position as usize * pairs..][..pairs];
        match self.rope.form() {
            RopeForm::Halves => {
                let (low, high) = head.split_at_mut(pairs);
                for ((low, high), &(cos, sin)) in low.iter_mut().zip(high).zip(factors) {
                    let (a, b) = (*low, *high);
                    *low = E::round(E::round(a * cos) + E::round(-b * sin));
                    *high = E::round(E::round(b * cos) + E::round(a * sin));
                }
            }
            RopeForm::Neighbours => {
                for (pair, &(cos, sin)) in head.chunks_exact_mut(2).zip(factors) {
                    let (a, b) = (pair[0], pair[1]);
                    pair[0] = E::round(a * cos - b * sin);
                    pair[1] = E::round(b * cos + a * sin);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rotated(model: &str, position: u32, mut head: [f32; 4]) -> [f32; 4] {
        let builtin = Architecture::builtin(model).expect("a built-in model");
        let mut rope = Rope::<f32>::new(&Architecture { head_dim: 4, ..builtin });
        rope.grow(position + 1);
        rope.rotate(position, &mut head);
        head
    }

    #[test]
    fn families_pair_other_channels() {
        let (cos, sin) = (1f32.cos(), 1f32.sin());
        assert_eq!(rotated("tiny-ouro", 1, [1.0, 0.0, 0.0, 0.0]), [cos, 0.0, sin, 0.0]);
        assert_eq!(rotated("tiny-huginn", 1, [1.0, 0.0, 0.0, 0.0]), [cos, sin, 0.0, 0.0]);
        assert_eq!(rotated("tiny-ouro", 0, [1.0, 2.0, 3.0, 4.0]), [1.0, 2.0, 3.0, 4.0]);
    }

    #[test]
    fn a_product_depends_on_the_distance_alone() {
        let dot = |a: [f32; 4], b: [f32; 4]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
        for model in ["tiny-ouro", "tiny-huginn"] {
            let (q, k) = ([0.3, -0.7, 1.1, 0.2], [0.9, 0.4, -0.5, 0.8]);
            let near = dot(rotated(model, 9, q), rotated(model, 4, k));
            let far = dot(rotated(model, 105, q), rotated(model, 100, k));
            assert!((near - far).abs() < 1e-5, "{near} {far}");
        }
    }
}
