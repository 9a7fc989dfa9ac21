//! The device memory of a run: KV pools, tables, states by slot, and the activations of one batch.

use super::device::Device;
use super::error::CudaError;
use super::memory::{Address, Buffer};
use super::stream::{SHARES_MAX, STREAM_ROWS_MAX};
use super::upload::{Offsets, QUERIES, SPLIT};
use crate::architecture::Architecture;
use crate::live::LiveConfig;
use crate::models::rope::Rope;

/// One KV pool.
#[derive(Debug)]
pub(super) struct Pool {
    pub(super) buffer: Buffer,
    /// Numbers of a layer.
    pub(super) layer_numbers: u64,
    /// Numbers of a block in one layer.
    pub(super) block_numbers: u64,
    pub(super) layers: usize,
}

impl Pool {
    /// A layer's address.
    pub(super) fn layer(&self, layer: usize) -> Address {
        self.buffer.at(layer * self.layer_numbers as usize * 2)
    }
}

/// See the module's text. Buffers are named after what they hold; sizes are in [`Store::new`].
#[derive(Debug)]
pub(super) struct Store {
    pub(super) core: Pool,
    pub(super) boundary: Pool,
    pub(super) tables: Buffer,
    pub(super) depths: Buffer,
    pub(super) factors: Buffer,
    pub(super) state: Buffer,
    pub(super) injected: Buffer,
    /// By place, the token chosen as its input.
    pub(super) inputs: Buffer,
    pub(super) upload: Buffer,
    /// Chosen tokens, then signals: what is read back.
    pub(super) results: Buffer,
    pub(super) counters: Buffer,
    pub(super) arrived: Buffer,
    pub(super) parts: Buffer,
    pub(super) part_sums: Buffer,
    pub(super) x: Buffer,
    pub(super) y: Buffer,
    /// A branch's output: bf16, or f32 in shares of K.
    pub(super) z: Buffer,
    pub(super) qkv: Buffer,
    pub(super) attended: Buffer,
    pub(super) wide: Buffer,
    pub(super) gated: Buffer,
    pub(super) joined: Buffer,
    pub(super) logits: Buffer,
    /// By place, the last loop's logits, if the exit criterion compares them.
    pub(super) last_logits: Buffer,
    /// Prefill's states, by token.
    pub(super) token_state: Buffer,
    pub(super) token_injected: Buffer,
    pub(super) offsets: Offsets,
    /// Positions on their way at once, of all sequences together.
    pub(super) places: usize,
    pub(super) pages_max: usize,
    pub(super) context_max: usize,
    pub(super) planes: usize,
}

/// Attention launches that one graph may hold.
const COUNTERS: usize = 4096;

impl Store {
    pub(super) fn new(
        device: &Device,
        architecture: &Architecture,
        live: &LiveConfig,
        rows_max: usize,
    ) -> Result<Self, CudaError> {
        let (a, config) = (architecture, &live.scheduler);
        let kv = &config.kv;
        let (hidden, ffn) = (a.hidden as usize, a.ffn as usize);
        let (attention, kv_width) = (a.query_width() as usize, a.kv_width() as usize);
        let planes = usize::from(kv.layout.planes(config.r_max));
        let block_tokens = kv.block_tokens as usize;
        let boundary_layers = (a.prelude_layers + a.coda_layers) as usize;
        let pages = kv.blocks as usize / planes;
        let boundary_blocks = if kv.boundary_layers { pages } else { 0 };
        let pool = |layers: usize, blocks: usize, what: &str| {
            let block_numbers = (2 * kv_width * block_tokens) as u64;
            let layer_numbers = block_numbers * blocks as u64;
            let buffer = Buffer::zeroed(device, layers * layer_numbers as usize * 2, what)?;
            Ok::<_, CudaError>(Pool { buffer, layer_numbers, block_numbers, layers })
        };
        let (slots, window) = (config.max_num_seqs as usize, live.window as usize);
        let places = slots * window;
        let tokens_max = (config.max_num_batched_tokens as usize).max(rows_max);
        let context_max = config.max_context_tokens as usize;
        let items_max = window * (pages * block_tokens / SPLIT as usize) + rows_max + 1;
        let tiles_max = tokens_max / QUERIES as usize + slots + 1;
        let upload_bytes = 4096 + 64 * (tokens_max + rows_max) + 16 * (2 * items_max + pages + tiles_max);
        let kept_bytes = live.exits.criterion(a).kept_bytes(a);
        let factors = Rope::new(a).table(config.max_context_tokens);
        let bytes = |numbers: usize, what: &str| Buffer::zeroed(device, numbers, what);
        let store = Self {
            core: pool(a.core_layers as usize, kv.blocks as usize, "the core's KV pool")?,
            boundary: pool(boundary_layers, boundary_blocks, "the boundary layers' KV pool")?,
            tables: bytes(slots * context_max.div_ceil(block_tokens) * 4, "page tables")?,
            depths: bytes(pages * block_tokens, "exit depths")?,
            factors: bytes(factors.len() * 8, "RoPE factors")?,
            state: bytes(places * hidden * 2, "states")?,
            injected: bytes(places * hidden * 2, "injected embeddings")?,
            inputs: bytes(places * 4, "chosen tokens")?,
            upload: bytes(upload_bytes, "batch descriptions")?,
            results: bytes(rows_max * 12 + 8, "results")?,
            counters: bytes(COUNTERS * 4, "work counters")?,
            arrived: bytes(rows_max * a.heads as usize * 4, "arrival counters")?,
            parts: bytes(items_max * attention * 4, "attention parts")?,
            part_sums: bytes(items_max * a.heads as usize * 8, "attention sums")?,
            x: bytes(tokens_max * hidden * 2, "activations")?,
            y: bytes(tokens_max * hidden * 2, "activations")?,
            z: bytes(
                (tokens_max * hidden * 2).max(SHARES_MAX * rows_max.max(STREAM_ROWS_MAX) * hidden * 4),
                "branches",
            )?,
            qkv: bytes(tokens_max * (attention + 2 * kv_width) * 2, "queries, keys and values")?,
            attended: bytes(tokens_max * attention * 2, "attention outputs")?,
            wide: bytes(tokens_max * 2 * ffn * 2, "MLP activations")?,
            gated: bytes(tokens_max * ffn * 2, "gated MLP activations")?,
            joined: bytes(if boundary_layers > 0 { tokens_max * 2 * hidden * 2 } else { 0 }, "adapter inputs")?,
            logits: bytes(rows_max * a.vocab as usize * 4, "logits")?,
            last_logits: bytes(places * kept_bytes as usize, "the last loop's logits")?,
            token_state: bytes(tokens_max * hidden * 2, "prefill states")?,
            token_injected: bytes(if boundary_layers > 0 { tokens_max * hidden * 2 } else { 0 }, "prefill embeddings")?,
            offsets: Offsets::new(places),
            places,
            pages_max: context_max.div_ceil(block_tokens),
            context_max,
            planes,
        };
        store.factors.write(device, 0, bytemuck::cast_slice(&factors))?;
        Ok(store)
    }

    /// Where the exit signals lie among the results: behind one token a row, aligned for pairs of f32.
    pub(super) fn signals_at(&self) -> usize {
        (self.places * 4).next_multiple_of(8)
    }

    /// Bytes of the largest batch description.
    pub(super) fn upload_bytes(&self) -> usize {
        self.upload.bytes()
    }
}
