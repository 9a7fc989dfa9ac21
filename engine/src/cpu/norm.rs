//! RMSNorm: mean of squares in f32, times the reciprocal root, rounded, times the weight, rounded.

use super::element::Element;
use super::matrix::Matrix;
use super::parallel::for_each_chunk;
use crate::architecture::Family;

/// The norm of every row.
pub(super) fn rms_norm<E: Element>(x: &Matrix, weight: &[f32]) -> Matrix {
    let mut y = x.clone();
    rms_norm_in_place::<E>(&mut y, weight);
    y
}

/// Replaces every row by its norm.
pub(super) fn rms_norm_in_place<E: Element>(x: &mut Matrix, weight: &[f32]) {
    assert_eq!(weight.len(), x.width(), "a norm of another width");
    let (width, flops) = (x.width(), 4 * x.data().len());
    for_each_chunk(
        x.data_mut(),
        width,
        flops,
        || (),
        |(), _, row| {
            let mean = sum_of_squares(row) / width as f32;
            let scale = 1.0 / (mean + Family::NORM_EPSILON).sqrt();
            row.iter_mut().zip(weight).for_each(|(x, &weight)| *x = E::round(E::round(*x * scale) * weight));
        },
    );
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
        let y = rms_norm::<f32>(&x, &[1.0, 1.0, 1.0, 2.0]);
        for (got, expected) in y.row(0).iter().zip([1.2, -1.6, 0.0, 0.0]) {
            assert!((got - expected).abs() < 1e-6, "{got}");
        }
        // 1.2 in bf16 is 1.203125; times 1.0078125, rounded again.
        let y = rms_norm::<bf16>(&x, &[1.007_812_5; 4]);
        assert_eq!(y.row(0)[0], bf16::from_f32(1.203_125 * 1.007_812_5).to_f32());
    }
}
