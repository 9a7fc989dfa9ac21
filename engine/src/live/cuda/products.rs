//! Matrix products, and the choice of who multiplies: our stream, our tiles, or cuBLASLt.

use super::arguments::Stream;
use super::cublaslt::Product;
use super::device::arguments;
use super::error::CudaError;
use super::memory::Address;
use super::model::{Layer, Linear};
use super::ops::Ops;
use super::stream::{STREAM_ROWS, STREAM_ROWS_MAX, StreamPlan, TensorMap};

/// Threads of the streaming GEMM's block: four warps that multiply, one that fetches.
const STREAM_THREADS: u32 = 160;

/// What the streaming GEMM leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leaves {
    Bf16,
    F32,
    /// Sums over shares of K, for the norm behind it to add.
    Shares,
    Gated,
}

/// What a GEMM is part of. Batch-invariant mode has one kernel for each, whatever the number of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Decode,
    Prefill,
}

impl Ops {
    /// `y = x W^T` in bf16.
    pub(super) fn linear(
        &self,
        l: &Linear,
        (x, y): (Address, Address),
        rows: usize,
        phase: Phase,
    ) -> Result<(), CudaError> {
        if self.streams(rows, phase) {
            return self.stream(l, Leaves::Bf16, (x, y), rows).map(|_| ());
        }
        self.large(l, (x, y), rows, false)
    }

    /// A branch's last layer, for [`Ops::norm`] to add: the number of shares of K that `z` holds in f32, 0 for bf16.
    pub(super) fn branch(
        &self,
        l: &Linear,
        (x, z): (Address, Address),
        rows: usize,
        phase: Phase,
    ) -> Result<i32, CudaError> {
        match self.streams(rows, phase) {
            true => self.stream(l, Leaves::Shares, (x, z), rows),
            false => self.large(l, (x, z), rows, false).map(|()| 0),
        }
    }

    /// Logits in f32. Few rows even in prefill, and always the decode kernel in batch-invariant mode.
    pub(super) fn logits(&self, head: &Linear, (x, y): (Address, Address), rows: usize) -> Result<(), CudaError> {
        if self.streams(rows, Phase::Decode) {
            return self.stream(head, Leaves::F32, (x, y), rows).map(|_| ());
        }
        self.large(head, (x, y), rows, true)
    }

    /// `y = silu(gate x) * (up x)`; `wide` is scratch for both.
    pub(super) fn gated(
        &self,
        layer: &Layer,
        (x, wide, y): (Address, Address, Address),
        rows: usize,
        phase: Phase,
    ) -> Result<(), CudaError> {
        let l = &layer.gate_up;
        if self.streams(rows, phase) {
            return self.stream(l, Leaves::Gated, (x, y), rows).map(|_| ());
        }
        self.large(l, (x, wide), rows, false)?;
        let vectors = (rows * l.outputs / 16) as u64;
        let blocks = vectors.div_ceil(256).min(u64::from(self.device.multiprocessors()) * 8) as u32;
        self.launch("silu", ((blocks, 1), 256, 0), arguments![wide, y, vectors])
    }

    fn streams(&self, rows: usize, phase: Phase) -> bool {
        let fits = if self.invariant { phase == Phase::Decode } else { rows <= STREAM_ROWS_MAX };
        fits && self.kernels.contains_key("stream_16")
    }

    /// The number of shares of K that it leaves.
    fn stream(&self, l: &Linear, leaves: Leaves, (x, y): (Address, Address), rows: usize) -> Result<i32, CudaError> {
        let gated = leaves == Leaves::Gated;
        let outputs = if gated { l.outputs / 2 } else { l.outputs };
        let multiprocessors = self.device.multiprocessors() as usize;
        let plan = StreamPlan::new((outputs, l.inputs), (gated, leaves == Leaves::Shares), multiprocessors);
        let names = match (leaves, plan.is_wide()) {
            (Leaves::Gated, _) => ["stream_gated_16", "stream_gated_32", "stream_gated_64"],
            (Leaves::Bf16, false) => ["stream_16", "stream_32", "stream_64"],
            (Leaves::Bf16, true) => ["stream_wide_16", "stream_wide_32", "stream_wide_64"],
            (_, false) => ["stream_f32_16", "stream_f32_32", "stream_f32_64"],
            (_, true) => ["stream_f32_wide_16", "stream_f32_wide_32", "stream_f32_wide_64"],
        };
        let size = STREAM_ROWS.iter().position(|&at_once| rows <= at_once).unwrap_or(STREAM_ROWS.len() - 1);
        let at_once = STREAM_ROWS[size];
        let weights = TensorMap::new(l.weights, (l.outputs, l.inputs), plan.width)?;
        let activations = TensorMap::new(x, (rows, l.inputs), at_once)?;
        let (stages, shared) = plan.ring(at_once);
        let shares = plan.shares as i32;
        let stream = Stream {
            y,
            outputs: outputs as i32,
            inputs: l.inputs as i32,
            rows: rows as i32,
            width: plan.width as i32,
            shares,
            stages: stages as i32,
        };
        let blocks = multiprocessors.min(plan.pieces(outputs, rows, at_once));
        let shape = ((blocks as u32, 1), STREAM_THREADS, shared as u32);
        self.launch(names[size], shape, arguments![weights, activations, stream])?;
        Ok(shares)
    }

    fn large(&self, l: &Linear, (x, y): (Address, Address), rows: usize, f32_out: bool) -> Result<(), CudaError> {
        if !self.invariant {
            let product = Product { rows, outputs: l.outputs, inputs: l.inputs, f32_out };
            return self.cublaslt.multiply(&self.device, product, (l.weights, x, y));
        }
        let name = if f32_out { "tile_f32" } else { "tile_bf16" };
        let grid = (l.outputs.div_ceil(128) as u32, rows.div_ceil(128) as u32);
        let (weights, inputs, outputs, rows) = (l.weights, l.inputs as i32, l.outputs as i32, rows as i32);
        self.launch(name, (grid, 256, 2 * 4 * 128 * 40 * 2), arguments![weights, x, y, inputs, outputs, rows])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::architecture::Architecture;
    use crate::live::cuda::compile::For;
    use crate::live::cuda::device::CudaDevice;
    use crate::live::cuda::memory::Buffer;
    use crate::models::criterion::Criterion;

    /// Numbers in [-1, 1), and what bf16 keeps of them.
    fn numbers(count: usize, seed: u32) -> Vec<half::bf16> {
        let draw =
            |i: u32| (i.wrapping_add(seed).wrapping_mul(0x9e37_79b9).rotate_left(13).wrapping_mul(0x85eb_ca6b)) >> 8;
        (0..count as u32).map(|i| half::bf16::from_f32(draw(i) as f32 / (1 << 23) as f32 - 1.0)).collect()
    }

    /// Sums of products in f64, `[rows][outputs]`.
    fn sums(weights: &[half::bf16], x: &[half::bf16], (outputs, inputs): (usize, usize)) -> Vec<f64> {
        let wide = |x: &[half::bf16]| -> Vec<f64> { x.iter().map(|x| x.to_f64()).collect() };
        let (weights, x) = (wide(weights), wide(x));
        let mut sums = Vec::with_capacity(x.len() / inputs * outputs);
        for x in x.chunks(inputs) {
            sums.extend(weights.chunks(inputs).map(|w| w.iter().zip(x).map(|(w, x)| w * x).sum::<f64>()));
        }
        assert_eq!(sums.len() % outputs, 0);
        sums
    }

    /// The shares of K that a product leaves, `[shares][rows][outputs]`, or its bf16 numbers.
    fn left(ops: &Ops, l: &Linear, x: &Buffer, rows: usize, leaves: Leaves) -> Vec<f32> {
        let outputs = if leaves == Leaves::Gated { l.outputs / 2 } else { l.outputs };
        let y = Buffer::zeroed(&ops.device, 4 * rows * outputs * 4, "a product").unwrap();
        ops.chained.set(false);
        let shares = ops.stream(l, leaves, (x.address(), y.address()), rows).unwrap() as usize;
        ops.device.synchronize().unwrap();
        match leaves {
            Leaves::F32 | Leaves::Shares => y.read::<f32>(shares * rows * outputs).unwrap(),
            _ => {
                y.read::<u16>(rows * outputs).unwrap().into_iter().map(|x| half::bf16::from_bits(x).to_f32()).collect()
            }
        }
    }

    #[test]
    #[ignore = "needs a Hopper GPU"]
    fn a_streamed_product_is_right_and_the_same_for_any_number_of_rows() {
        let architecture = Architecture::builtin("tiny-ouro").unwrap();
        let device = CudaDevice::open(0).unwrap();
        let criterion = Criterion::of(&architecture);
        let ops = Ops::new(&device, For { architecture: &architecture, block_tokens: 4, criterion }, true).unwrap();
        // Edges everywhere: outputs, inputs and rows that fill neither tiles, nor stages, nor groups.
        for (outputs, inputs) in [(176, 64), (1000, 200), (520, 1416), (9000, 72)] {
            let (w, x) = (numbers(outputs * inputs, 1), numbers(150 * inputs, 2));
            let upload = |numbers: &[half::bf16]| {
                let buffer = Buffer::new(&device, numbers.len() * 2, "numbers").unwrap();
                buffer.write(&device, 0, bytemuck::cast_slice(numbers)).unwrap();
                buffer
            };
            let (weights, activations) = (upload(&w), upload(&x));
            let l = Linear { weights: weights.address(), outputs, inputs };
            let expected = sums(&w, &x, (outputs, inputs));
            for leaves in [Leaves::Bf16, Leaves::F32, Leaves::Shares, Leaves::Gated] {
                let wide = if leaves == Leaves::Gated { outputs / 2 } else { outputs };
                let all = left(&ops, &l, &activations, 150, leaves);
                for row in 0..150 {
                    for o in 0..wide {
                        let at = |o: usize| expected[row * outputs + o];
                        let want = match leaves {
                            Leaves::Gated => at(o) / (1.0 + (-at(o)).exp()) * at(wide + o),
                            _ => at(o),
                        };
                        let got: f64 = all.chunks(150 * wide).map(|share| f64::from(share[row * wide + o])).sum();
                        // The gate is rounded to bf16 before its sigmoid, a product behind everything.
                        assert!(
                            (got - want).abs() < 0.02 * want.abs() + 0.02,
                            "{leaves:?} {outputs}x{inputs}: {got}, not {want}"
                        );
                    }
                }
                for rows in [1, 2, 8, 9, 15, 16, 17, 24, 31, 32, 33, 40, 57, 63, 64, 65, 128] {
                    let fewer = left(&ops, &l, &activations, rows, leaves);
                    for (fewer, all) in fewer.chunks(rows * wide).zip(all.chunks(150 * wide)) {
                        assert!(
                            fewer == &all[..rows * wide],
                            "{leaves:?} {outputs}x{inputs}, {rows} rows differ from 150"
                        );
                    }
                }
            }
        }
    }
}
