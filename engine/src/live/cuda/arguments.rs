//! What kernels with many arguments take. An address of 0 is null.
//!
//! Those that are `repr(C)` go to a kernel whole, field by field as its file declares them; of the others every field is an
//! argument of its own.

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

/// Norms all queries and all keys of every row in place: `norm.cu`.
#[derive(Clone, Copy, Debug)]
pub(super) struct QkNorm {
    pub(super) header: Address,
    pub(super) qkv: Address,
    pub(super) queries: Address,
    pub(super) keys: Address,
}

/// Every row's token looked up in `table`: `embed.cu`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Embed {
    pub(super) header: Address,
    pub(super) rows: Address,
    pub(super) inputs: Address,
    pub(super) table: Address,
    pub(super) x: Address,
    pub(super) scale: f32,
}

/// The injected embedding and the state that a loop starts from: `embed.cu`.
#[derive(Clone, Copy, Debug)]
pub(super) struct StartLoop {
    pub(super) header: Address,
    pub(super) rows: Address,
    pub(super) x: Address,
    pub(super) injected: Address,
    pub(super) state: Address,
    pub(super) by_place: bool,
    /// The noise's seed; none for a state of zeros.
    pub(super) noise: Option<u64>,
}

/// State and injected embedding side by side: `embed.cu`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Join {
    pub(super) header: Address,
    pub(super) rows: Address,
    pub(super) state: Address,
    pub(super) injected: Address,
    pub(super) joined: Address,
    pub(super) by_place: bool,
}

/// The rows of `from` that `picks` lists: `embed.cu`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gather {
    pub(super) picks: Address,
    pub(super) from: Address,
    pub(super) to: Address,
}

/// Blocks of all layers of a pool to `saved`, or back: `transfer.cu`.
#[derive(Clone, Copy, Debug)]
pub(super) struct MoveBlocks {
    pub(super) pool: Address,
    pub(super) saved: Address,
    pub(super) jobs: Address,
    pub(super) layers: usize,
    /// Numbers of a layer.
    pub(super) layer_stride: u64,
    pub(super) restores: bool,
}

/// Exit depths of pages to `saved`, or back: `transfer.cu`.
#[derive(Clone, Copy, Debug)]
pub(super) struct MoveDepths {
    pub(super) depths: Address,
    pub(super) saved: Address,
    pub(super) jobs: Address,
    pub(super) restores: bool,
}
