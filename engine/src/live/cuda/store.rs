//! The device memory of a run: KV pools, tables, states by slot, and the activations of one batch.

use super::device::CudaDevice;
use super::error::CudaError;
use super::memory::{Address, Buffer};
use super::stream::{SHARES_MAX, STREAM_ROWS_MAX};
use super::upload::{Offsets, QUERIES, SPLIT};
use crate::architecture::Architecture;
use crate::live::LiveConfig;
use crate::models::rope::Rope;
use crate::scheduler::SchedulerConfig;

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

/// Everything that a model's runs keep on the device.
#[derive(Debug)]
pub(super) struct Store {
    pub(super) kv: KvStore,
    pub(super) positions: PositionStore,
    pub(super) scratch: Scratch,
    pub(super) offsets: Offsets,
}

/// Keys and values, and where they are.
#[derive(Debug)]
pub(super) struct KvStore {
    pub(super) core: Pool,
    /// Of the layers outside the loop.
    pub(super) boundary: Pool,
    /// By slot: pages.
    pub(super) tables: Buffer,
    /// By page, then token: the deepest loop that ran.
    pub(super) depths: Buffer,
    /// RoPE's, by position, then pair.
    pub(super) factors: Buffer,
    pub(super) pages_max: usize,
    pub(super) context_max: usize,
    pub(super) planes: usize,
}

/// What a position keeps from batch to batch, by place: (slot, position mod window).
#[derive(Debug)]
pub(super) struct PositionStore {
    pub(super) state: Buffer,
    pub(super) injected: Buffer,
    /// The token chosen as its input.
    pub(super) inputs: Buffer,
    /// The last loop's logits, if the exit criterion compares them.
    pub(super) last_logits: Buffer,
    /// Positions on their way at once, of all sequences together.
    pub(super) places: usize,
}

/// What one batch uses and the next writes over, by row or token.
#[derive(Debug)]
pub(super) struct Scratch {
    pub(super) upload: Buffer,
    /// Chosen tokens, then signals: what is read back.
    pub(super) results: Buffer,
    pub(super) counters: Buffer,
    pub(super) arrived: Buffer,
    pub(super) parts: Buffer,
    pub(super) part_sums: Buffer,
    /// The residual stream.
    pub(super) x: Buffer,
    /// Its norm.
    pub(super) y: Buffer,
    /// A branch's output: bf16, or f32 in shares of K.
    pub(super) branch: Buffer,
    pub(super) qkv: Buffer,
    pub(super) attended: Buffer,
    pub(super) wide: Buffer,
    pub(super) gated: Buffer,
    pub(super) joined: Buffer,
    pub(super) logits: Buffer,
    /// Prefill's states.
    pub(super) token_state: Buffer,
    pub(super) token_injected: Buffer,
}

/// Attention launches that one graph may hold.
const COUNTERS: usize = 4096;

impl KvStore {
    fn new(device: &CudaDevice, a: &Architecture, config: &SchedulerConfig) -> Result<Self, CudaError> {
        let kv = &config.kv;
        let planes = usize::from(kv.layout.planes(config.r_max));
        let (block_tokens, pages) = (kv.block_tokens as usize, kv.blocks as usize / planes);
        let pool = |layers: usize, blocks: usize, what: &str| {
            let block_numbers = (2 * a.kv_width() as usize * block_tokens) as u64;
            let layer_numbers = block_numbers * blocks as u64;
            let buffer = Buffer::zeroed(device, layers * layer_numbers as usize * 2, what)?;
            Ok::<_, CudaError>(Pool { buffer, layer_numbers, block_numbers, layers })
        };
        let boundary_layers = (a.prelude_layers + a.coda_layers) as usize;
        let boundary_blocks = if kv.boundary_layers { pages } else { 0 };
        let context_max = config.max_context_tokens as usize;
        let pages_max = context_max.div_ceil(block_tokens);
        let factors = Rope::new(a).table(config.max_context_tokens);
        let store = Self {
            core: pool(a.core_layers as usize, kv.blocks as usize, "the core's KV pool")?,
            boundary: pool(boundary_layers, boundary_blocks, "the boundary layers' KV pool")?,
            tables: Buffer::zeroed(device, config.max_num_seqs as usize * pages_max * 4, "page tables")?,
            depths: Buffer::zeroed(device, pages * block_tokens, "exit depths")?,
            factors: Buffer::zeroed(device, factors.len() * 8, "RoPE factors")?,
            pages_max,
            context_max,
            planes,
        };
        store.factors.write(device, 0, bytemuck::cast_slice(&factors))?;
        Ok(store)
    }
}

impl PositionStore {
    fn new(device: &CudaDevice, a: &Architecture, live: &LiveConfig) -> Result<Self, CudaError> {
        let places = (live.scheduler.max_num_seqs * live.window) as usize;
        let hidden = a.hidden as usize;
        let kept_bytes = live.exits.criterion(a).kept_bytes(a) as usize;
        Ok(Self {
            state: Buffer::zeroed(device, places * hidden * 2, "states")?,
            injected: Buffer::zeroed(device, places * hidden * 2, "injected embeddings")?,
            inputs: Buffer::zeroed(device, places * 4, "chosen tokens")?,
            last_logits: Buffer::zeroed(device, places * kept_bytes, "the last loop's logits")?,
            places,
        })
    }
}

impl Scratch {
    fn new(device: &CudaDevice, a: &Architecture, live: &LiveConfig, rows_max: usize) -> Result<Self, CudaError> {
        let config = &live.scheduler;
        let (hidden, ffn) = (a.hidden as usize, a.ffn as usize);
        let (attention, kv_width) = (a.query_width() as usize, a.kv_width() as usize);
        let (slots, window) = (config.max_num_seqs as usize, live.window as usize);
        let pages = config.kv.blocks as usize / usize::from(config.kv.layout.planes(config.r_max));
        let tokens_max = (config.max_num_batched_tokens as usize).max(rows_max);
        // Entries of all page tables together: where pages are shared there can be more than pages.
        let entries_max = match config.kv.prefix_cache {
            Some(_) => slots * config.max_context_tokens.div_ceil(config.kv.block_tokens) as usize,
            None => pages,
        };
        let items_max = window * (entries_max * config.kv.block_tokens as usize / SPLIT as usize) + rows_max + 1;
        let tiles_max = tokens_max / QUERIES as usize + slots + 1;
        let upload_bytes = 4096 + 64 * (tokens_max + rows_max) + 16 * (2 * items_max + entries_max + tiles_max);
        let boundary_tokens = if a.has_boundary_layers() { tokens_max } else { 0 };
        let bytes = |bytes: usize, what: &str| Buffer::zeroed(device, bytes, what);
        Ok(Self {
            upload: bytes(upload_bytes, "batch descriptions")?,
            results: bytes(rows_max * 12 + 8, "results")?,
            counters: bytes(COUNTERS * 4, "work counters")?,
            arrived: bytes(rows_max * a.heads as usize * 4, "arrival counters")?,
            parts: bytes(items_max * attention * 4, "attention parts")?,
            part_sums: bytes(items_max * a.heads as usize * 8, "attention sums")?,
            x: bytes(tokens_max * hidden * 2, "activations")?,
            y: bytes(tokens_max * hidden * 2, "activations")?,
            branch: bytes(
                (tokens_max * hidden * 2).max(SHARES_MAX * rows_max.max(STREAM_ROWS_MAX) * hidden * 4),
                "branches",
            )?,
            qkv: bytes(tokens_max * (attention + 2 * kv_width) * 2, "queries, keys and values")?,
            attended: bytes(tokens_max * attention * 2, "attention outputs")?,
            wide: bytes(tokens_max * 2 * ffn * 2, "MLP activations")?,
            gated: bytes(tokens_max * ffn * 2, "gated MLP activations")?,
            joined: bytes(boundary_tokens * 2 * hidden * 2, "adapter inputs")?,
            logits: bytes(rows_max * a.vocab as usize * 4, "logits")?,
            token_state: bytes(tokens_max * hidden * 2, "prefill states")?,
            token_injected: bytes(boundary_tokens * hidden * 2, "prefill embeddings")?,
        })
    }
}

impl Store {
    pub(super) fn new(
        device: &CudaDevice,
        architecture: &Architecture,
        live: &LiveConfig,
        rows_max: usize,
    ) -> Result<Self, CudaError> {
        let positions = PositionStore::new(device, architecture, live)?;
        Ok(Self {
            kv: KvStore::new(device, architecture, &live.scheduler)?,
            offsets: Offsets::new(positions.places),
            positions,
            scratch: Scratch::new(device, architecture, live, rows_max)?,
        })
    }

    /// Where the exit signals lie among the results: behind one token a row, aligned for pairs of f32.
    pub(super) fn signals_at(&self) -> usize {
        (self.positions.places * 4).next_multiple_of(8)
    }

    /// Bytes of the largest batch description.
    pub(super) fn upload_bytes(&self) -> usize {
        self.scratch.upload.bytes()
    }
}
