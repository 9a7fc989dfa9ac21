//! How the streaming GEMM cuts a layer's work, and matrices as the GPU's copy engine sees them (`kernels/gemm_stream.cu`).
#![expect(unsafe_code, reason = "the driver encodes the matrices")]

use cudarc::driver::sys;

use super::device::check;
use super::error::CudaError;
use super::memory::Address;

/// Rows that a kernel takes at a time. Their products are the same bits.
pub(super) const STREAM_ROWS: [usize; 3] = [16, 32, 64];

/// Up to so many rows it beats cuBLASLt, see `reports/h200`.
pub(super) const STREAM_ROWS_MAX: usize = 64;

/// Shares of K that the norm behind a GEMM adds, at most; `norm.cu` has the same.
pub(super) const SHARES_MAX: usize = 4;

/// The kernel's ring of stages has at most so many.
const STAGES_MAX: usize = 16;

/// Bytes of a row in a stage: 64 numbers, which the copy engine swizzles.
const LINE: usize = 128;

/// Shared memory of a block: nearly all, for a deep ring, and so that no two blocks meet on one multiprocessor while
/// another is idle, as happens where two fit.
const SHARED_BYTES: usize = 212 << 10;

/// How a layer is cut. It depends on the layer alone, so that the order of summation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StreamPlan {
    /// Outputs of a tile; gated, as many of the gate and of up.
    pub(super) width: usize,
    /// Parts of K, each of which leaves its own sums.
    pub(super) shares: usize,
    gated: bool,
}

impl StreamPlan {
    /// A product of `outputs` (gated or not) by `inputs`; `splits` says that what follows can add shares of K.
    ///
    /// Every multiprocessor gets the same number of tiles. Each tile reads all activations, so narrow tiles of all of K
    /// cost more than wide ones of a share.
    pub(super) fn new(
        (outputs, inputs): (usize, usize),
        (gated, splits): (bool, bool),
        multiprocessors: usize,
    ) -> Self {
        let widest = if gated { 64 } else { 128 };
        let narrow = |shares: usize| outputs * shares < 48 * multiprocessors;
        let mut shares = 1;
        // No share is empty: K runs in chunks of 64.
        while splits && 2 * shares <= SHARES_MAX.min(inputs.div_ceil(64)) && narrow(shares) {
            shares *= 2;
        }
        let turns = (outputs * shares).div_ceil(multiprocessors * widest);
        let width = (outputs * shares).div_ceil(multiprocessors * turns).next_multiple_of(2).max(8);
        Self { width, shares, gated }
    }

    /// Whether it takes the kernel with two tiles of 64 weight rows.
    pub(super) fn is_wide(self) -> bool {
        self.width > 64
    }

    /// Pieces of work for so many rows, of which a launch takes `at_once`.
    pub(super) fn pieces(self, outputs: usize, rows: usize, at_once: usize) -> usize {
        outputs.div_ceil(self.width) * self.shares * rows.div_ceil(at_once)
    }

    /// Stages of the ring and bytes of shared memory, by the rules of `gemm_stream.cu`.
    pub(super) fn ring(self, at_once: usize) -> (usize, usize) {
        let tile = self.width.next_multiple_of(8) * LINE;
        let weights = if self.gated { 2 * tile } else { tile };
        let stage = weights + at_once * LINE;
        // The tensor cores read 64 rows at a time, in the last stage beyond its end.
        let read = match (self.gated, self.is_wide()) {
            (true, _) => tile + 64 * LINE,
            (false, wide) => (1 + usize::from(wide)) * 64 * LINE,
        };
        let last = stage.max(read);
        let aligned = 1024;
        let stages = ((SHARED_BYTES - aligned - last) / stage + 1).min(STAGES_MAX);
        (stages, aligned + (stages - 1) * stage + last)
    }
}

/// A bf16 matrix of which the copy engine fetches boxes of 64 columns; numbers behind an edge are zeros.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub(super) struct TensorMap(sys::CUtensorMap);

impl TensorMap {
    /// A matrix `[rows, columns]`, fetched `box_rows` at a time.
    pub(super) fn new(address: Address, (rows, columns): (usize, usize), box_rows: usize) -> Result<Self, CudaError> {
        let mut map = std::mem::MaybeUninit::<sys::CUtensorMap>::uninit();
        let (sizes, stride) = ([columns as u64, rows as u64], columns as u64 * 2);
        let (box_sizes, steps) = ([64, box_rows as u32], [1, 1]);
        // SAFETY: the driver writes the map, and reads two sizes, one stride, two box sizes and two steps.
        unsafe {
            let encoded = sys::cuTensorMapEncodeTiled(
                map.as_mut_ptr(),
                sys::CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
                2,
                address as *mut _,
                sizes.as_ptr(),
                &stride,
                box_sizes.as_ptr(),
                steps.as_ptr(),
                sys::CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
                sys::CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B,
                sys::CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                sys::CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
            );
            check("cuTensorMapEncodeTiled", encoded)?;
            Ok(Self(map.assume_init()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_share_of_k_is_empty() {
        for inputs in [8, 64, 72, 136, 200, 240] {
            let plan = StreamPlan::new((72, inputs), (false, true), 132);
            assert!(plan.shares <= inputs.div_ceil(64), "{inputs} inputs: {plan:?}");
        }
    }

    #[test]
    fn every_layer_fits_and_keeps_most_multiprocessors_busy() {
        let layers = [
            (6144, 2048, false, false),
            (2048, 2048, false, true),
            (5632, 2048, true, false),
            (2048, 5632, false, true),
            (49_152, 2048, false, false),
            (15_840, 5280, false, false),
            (5280, 5280, false, true),
            (17_920, 5280, true, false),
            (5280, 17_920, false, true),
            (5280, 10_560, false, false),
            (65_536, 5280, false, false),
        ];
        for (outputs, inputs, gated, splits) in layers {
            let plan = StreamPlan::new((outputs, inputs), (gated, splits), 132);
            assert!(plan.width <= if gated { 64 } else { 128 } && plan.shares <= SHARES_MAX);
            let pieces = plan.pieces(outputs, 64, 64);
            assert!(pieces as f64 / (pieces.div_ceil(132) * 132) as f64 > 0.96, "{outputs}: {plan:?}, {pieces} pieces");
            for at_once in STREAM_ROWS {
                let (stages, bytes) = plan.ring(at_once);
                assert!(stages >= 3 && bytes <= SHARED_BYTES, "{outputs}: {stages} stages, {bytes} bytes");
            }
        }
    }
}
