//! Linear layers: weights in panels, multiplied in shapes that make a row's result independent of the other rows.

use super::element::Element;
use super::matrix::{Matrix, ROWS_MAX, padded};
use super::parallel::for_each_chunk;
use super::tile::{PANEL, multiply};
use crate::live::weights::tensor::Tensor;

/// `y = W x` for stacked weights `W [outputs, inputs]`, without bias.
///
/// Panel p holds outputs `64 p .. 64 p + 64` with the input index outermost, so that the GEMM reads it without packing.
/// Every GEMM is 8 to 64 rows by 64 outputs, whatever the layer and the batch.
#[derive(Debug)]
pub(super) struct Linear<E> {
    inputs: usize,
    outputs: usize,
    panels: Vec<E>,
}

/// Rows that go through all panels before the next rows do: bounds the scratch at full size.
const ROWS_AT_ONCE: usize = 8 * ROWS_MAX;

impl<E: Element> Linear<E> {
    /// Stacks `[outputs, inputs]` matrices with the same inputs, so that they cost one pass.
    pub(super) fn stack(parts: &[&Tensor]) -> Self {
        let inputs = parts[0].shape()[1];
        let outputs = parts.iter().map(|part| part.shape()[0]).sum::<usize>();
        let mut panels = vec![E::narrow(0.0); outputs.div_ceil(PANEL) * PANEL * inputs];
        let mut output = 0;
        for part in parts {
            assert_eq!(part.shape()[1], inputs, "stacked matrices have the same inputs");
            for row in E::convert(part).chunks_exact(inputs) {
                let panel = &mut panels[output / PANEL * PANEL * inputs..][..PANEL * inputs];
                panel[output % PANEL..].iter_mut().step_by(PANEL).zip(row).for_each(|(to, from)| *to = *from);
                output += 1;
            }
        }
        Self { inputs, outputs, panels }
    }

    /// Rows of outputs, rounded to the element type.
    pub(super) fn apply(&self, x: &Matrix) -> Matrix {
        self.multiply(x, E::round)
    }

    /// Rows of outputs as they were summed: logits are compared, not stored.
    pub(super) fn apply_unrounded(&self, x: &Matrix) -> Matrix {
        self.multiply(x, |y| y)
    }

    fn multiply(&self, x: &Matrix, store: impl Fn(f32) -> f32 + Sync + Send) -> Matrix {
        assert_eq!(x.width(), self.inputs, "a row of another width");
        let mut y = Matrix::zeros(x.rows(), self.outputs);
        for first in (0..x.rows()).step_by(ROWS_AT_ONCE) {
            let rows = (x.rows() - first).min(ROWS_AT_ONCE);
            let sums = self.sums(x, first, rows);
            let out = &mut y.data_mut()[first * self.outputs..][..rows * self.outputs];
            let moved = rows * self.outputs * 4;
            for_each_chunk(
                out,
                self.outputs,
                moved,
                || (),
                |(), row, out| {
                    for (panel, out) in out.chunks_mut(PANEL).enumerate() {
                        let sums = &sums[(panel * padded(rows) + row) * PANEL..];
                        out.iter_mut().zip(sums).for_each(|(out, &sum)| *out = store(sum));
                    }
                },
            );
        }
        y
    }

    /// Sums by panel, row and output, for `rows` rows from `first`, padding included.
    fn sums(&self, x: &Matrix, first: usize, rows: usize) -> Vec<f32> {
        let mut sums = vec![0.0; self.panels.len() / self.inputs * padded(rows)];
        let flops = 2 * rows * self.inputs * self.outputs;
        for_each_chunk(&mut sums, padded(rows) * PANEL, flops, Vec::new, |scratch, panel, out| {
            let panel = &self.panels[panel * PANEL * self.inputs..][..PANEL * self.inputs];
            let panel = E::widen_slice(panel, scratch);
            for (tile, out) in out.chunks_mut(ROWS_MAX * PANEL).enumerate() {
                let (x, _) = x.tile(first + tile * ROWS_MAX);
                let rows = out.len() / PANEL;
                multiply(&x[..rows * self.inputs], panel, out, rows);
            }
        });
        sums
    }
}

#[cfg(test)]
mod tests {
    use half::bf16;

    use super::*;
    use crate::models::counter::{Stream, centred, draw};

    fn random(stream: u64, rows: usize, width: usize) -> Vec<f32> {
        (0..rows * width).map(|i| centred(draw(9, Stream::Weights, stream, i as u64))).collect()
    }

    fn in_pool<T: Send>(threads: usize, work: impl FnOnce() -> T + Send) -> T {
        rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(work)
    }

    #[test]
    fn sums_are_right() {
        let (inputs, outputs, rows) = (75, 130, 9);
        let weights = random(0, outputs, inputs);
        let x = random(1, rows, inputs);
        let (top, bottom) = weights.split_at(100 * inputs);
        let linear = Linear::<f32>::stack(&[
            &Tensor::from_f32(&[100, inputs], top.to_vec()),
            &Tensor::from_f32(&[30, inputs], bottom.to_vec()),
        ]);
        let y = linear.apply(&Matrix::from_rows(inputs, x.chunks_exact(inputs)));
        for (row, x) in x.chunks_exact(inputs).enumerate() {
            for (output, weights) in weights.chunks_exact(inputs).enumerate() {
                let exact: f64 = x.iter().zip(weights).map(|(&x, &w)| f64::from(x) * f64::from(w)).sum();
                let got = f64::from(y.row(row)[output]);
                assert!((got - exact).abs() < 1e-5, "row {row}, output {output}: {got}, not {exact}");
            }
        }
    }

    /// The law on which every equality of tokens rests.
    fn a_row_alone_equals_the_row_in_any_batch<E: Element>(inputs: usize, outputs: usize) {
        let linear = Linear::<E>::stack(&[&Tensor::from_f32(&[outputs, inputs], random(0, outputs, inputs))]);
        let rows = random(1, 200, inputs);
        let row = |i: usize| &rows[(i % 200) * inputs..][..inputs];
        let alone: Vec<Matrix> =
            (0..200).map(|i| linear.apply_unrounded(&Matrix::from_rows(inputs, [row(i)].into_iter()))).collect();
        for threads in [1, 2, 3] {
            for batch in (1..=20).chain([31, 32, 33, 63, 64, 65, 66, 71, 72, 73, 127, 128, 129, 200]) {
                // Another first row for every size, so that rows move through all positions.
                let x = Matrix::from_rows(inputs, (0..batch).map(|i| row(i + batch)));
                let y = in_pool(threads, || linear.apply_unrounded(&x));
                for i in 0..batch {
                    let same = y.row(i).iter().zip(alone[(i + batch) % 200].row(0));
                    assert!(
                        same.clone().all(|(a, b)| a.to_bits() == b.to_bits()),
                        "row {i} of {batch}, {inputs} inputs, {outputs} outputs, {threads} threads"
                    );
                }
            }
        }
    }

    #[test]
    fn rows_do_not_depend_on_the_batch() {
        for (inputs, outputs) in [(3, 1), (64, 64), (64, 192), (72, 240), (176, 64), (600, 130), (2048, 65), (5632, 64)]
        {
            a_row_alone_equals_the_row_in_any_batch::<f32>(inputs, outputs);
        }
        a_row_alone_equals_the_row_in_any_batch::<bf16>(600, 130);
    }
}
