//! What kernels with many arguments take, field by field as their files declare it. An address of 0 is null.

use super::memory::Address;

/// `norm.cu`'s `NormArgs`; 0 is null.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Norm {
    pub(super) header: Address,
    pub(super) rows: Address,
    pub(super) x: Address,
    pub(super) branch: Address,
    pub(super) branch_norm: Address,
    pub(super) final_norm: Address,
    pub(super) next_norm: Address,
    pub(super) x_out: Address,
    pub(super) y_out: Address,
    pub(super) state: Address,
    pub(super) gates: [Address; 2],
    pub(super) biases: [Address; 2],
    pub(super) signals: Address,
    pub(super) x_by_place: i32,
    pub(super) state_by_place: i32,
    pub(super) shares: i32,
}

/// `attention_decode.cuh`'s `DecodeArgs`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DecodeAttention {
    pub(super) header: Address,
    pub(super) rows: Address,
    pub(super) items: Address,
    pub(super) qkv: Address,
    pub(super) qk_bias: Address,
    pub(super) factors: Address,
    pub(super) pool: Address,
    pub(super) tables: Address,
    pub(super) depths: Address,
    pub(super) parts: Address,
    pub(super) part_sums: Address,
    pub(super) arrived: Address,
    pub(super) next: Address,
    pub(super) out: Address,
    pub(super) pages_max: i32,
    pub(super) planes: i32,
    pub(super) layout: i32,
    pub(super) boundary: i32,
    pub(super) depth: i32,
    pub(super) marks_depth: i32,
}

/// `gemm_stream.cu`'s `StreamArgs`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Stream {
    pub(super) y: Address,
    pub(super) outputs: i32,
    pub(super) inputs: i32,
    pub(super) rows: i32,
    pub(super) width: i32,
    pub(super) shares: i32,
    pub(super) stages: i32,
}

/// `attention_prefill.cu`'s `PrefillArgs`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PrefillAttention {
    pub(super) header: Address,
    pub(super) tokens: Address,
    pub(super) tiles: Address,
    pub(super) qkv: Address,
    pub(super) qk_bias: Address,
    pub(super) factors: Address,
    pub(super) pool: Address,
    pub(super) tables: Address,
    pub(super) depths: Address,
    pub(super) out: Address,
    pub(super) pages_max: i32,
    pub(super) planes: i32,
    pub(super) layout: i32,
    pub(super) boundary: i32,
    pub(super) depth: i32,
    pub(super) marks_depth: i32,
}

/// `sample.cu`'s `SampleArgs`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sample {
    pub(super) header: Address,
    pub(super) draws: Address,
    pub(super) logits: Address,
    pub(super) inputs: Address,
    pub(super) chosen: Address,
}

/// `readout.cu`'s `ReadoutArgs`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Readout {
    pub(super) header: Address,
    pub(super) rows: Address,
    pub(super) logits: Address,
    pub(super) last: Address,
    pub(super) signals: Address,
    pub(super) signal: i32,
}
