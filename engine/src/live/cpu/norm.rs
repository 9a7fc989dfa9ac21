//! RMSNorm: mean of squares in f32, times the reciprocal root, rounded, times the weight, rounded.

use super::element::Element;
use super::matrix::Matrix;
use super::parallel::for_each_chunk;

/// A norm's weights, one a channel.
#[derive(Debug)]
pub(super) struct Norm {
    pub(super) weight: Vec<f32>,
    /// Added to the mean of squares.
    pub(super) epsilon: f32,
}

impl Norm {
    /// The norm of every row.
    pub(super) fn of<E: Element>(&self, x: &Matrix) -> Matrix {
        let mut y = x.clone();
        self.apply::<E>(&mut y);
        y
    }

    /// Replaces every row by its norm.
    pub(super) fn apply<E: Element>(&self, x: &mut Matrix) {
        assert_eq!(self.weight.len(), x.width(), "a norm of another width");
        let (width, flops) = (x.width(), 4 * x.data().len());
        for_each_chunk(x.data_mut(), width, flops, || (), |(), _, row| self.apply_to::<E>(row));
    }

    /// Replaces one row by its norm.
    pub(super) fn apply_to<E: Element>(&self, row: &mut [f32]) {
        let mean = sum_of_squares(row) / row.len() as f32;
        let scale = 1.0 / (mean + self.epsilon).sqrt();
        row.iter_mut().zip(&self.weight).for_each(|(x, &weight)| *x = E::round(E::round(*x * scale) * weight));
    }
}

/// In eight interleaved partial sums, added in order: a fixed order that vectorises.
pub(super) fn sum_of_squares(values: &[f32]) -> f32 {
    let mut sums = [0.0f32; 8];
    let (chunks, last) = values.as_chunks::<8>();
    for chunk in chunks {
        for i in 0..8 {
            sums[i] += chunk[i] * chunk[i];
        }
    }
    sums.iter_mut().zip(last).for_each(|(sum, x)| *sum += x * x);
    sums.iter().sum()
}

#[cfg(test)]
mod tests {
    use half::bf16;

    use super::*;

    #[test]
    fn a_row_is_scaled_to_unit_size_and_weighted() {
        let row = [3.0, -4.0, 0.0, 0.0];
        let x = Matrix::from_rows(4, [&row[..]].into_iter());
        let norm = |weight: [f32; 4], epsilon| Norm { weight: weight.into(), epsilon };
        let y = norm([1.0, 1.0, 1.0, 2.0], 1e-6).of::<f32>(&x);
        for (got, expected) in y.row(0).iter().zip([1.2, -1.6, 0.0, 0.0]) {
            assert!((got - expected).abs() < 1e-6, "{got}");
        }
        // 1.2 in bf16 is 1.203125; times 1.0078125, rounded again.
        let y = norm([1.007_812_5; 4], 1e-6).of::<bf16>(&x);
        assert_eq!(y.row(0)[0], bf16::from_f32(1.203_125 * 1.007_812_5).to_f32());
        // A mean of squares of 6.25, and of 25 with epsilon.
        assert_eq!(norm([1.0; 4], 18.75).of::<f32>(&x).row(0), [0.6, -0.8, 0.0, 0.0]);
    }
}
