//! One typed caller per kernel; `products.rs` has those of matrix products.

use std::cell::Cell;
use std::collections::HashMap;

use super::arguments::{DecodeAttention, Norm, PrefillAttention, Readout, Sample};
use super::compile::{For, compile, sources};
use super::device::{Device, Kernel, Shape, arguments};
use super::error::CudaError;
use super::lt::Lt;
use super::memory::Address;

/// Up to so many rows attention runs in blocks of 8 warps.
const FEW_ROWS: usize = 4;

/// Dynamic shared memory that a block may take: Hopper's 227 KB less what kernels declare themselves.
const SHARED_MAX: u32 = 226 << 10;

/// Kernels and libraries, ready for one model.
#[derive(Debug)]
pub(super) struct Ops {
    pub(super) device: Device,
    pub(super) lt: Lt,
    pub(super) kernels: HashMap<&'static str, Kernel>,
    pub(super) invariant: bool,
    heads: u32,
    kv_heads: u32,
    dim_padded: u32,
    norm_threads: u32,
    /// The next kernel may start before the one queued last has ended.
    pub(super) chained: Cell<bool>,
}

impl Ops {
    pub(super) fn new(device: &Device, model: For<'_>, invariant: bool) -> Result<Self, CudaError> {
        let architecture = model.architecture;
        let reason = match architecture {
            a if a.hidden % 8 > 0 || a.ffn % 8 > 0 || a.head_dim % 8 > 0 || a.vocab % 8 > 0 => {
                "hidden, ffn, head_dim and vocab must be multiples of 8: rows are read 16 bytes at a time"
            }
            a if a.head_dim > 128 => "head_dim must be at most 128",
            a if !a.form().injects() && a.prelude_layers + a.coda_layers > 0 => {
                "a model whose loop starts from the embedding has no layers outside the loop"
            }
            a if a.form().injects() && (a.prelude_layers == 0 || a.coda_layers == 0) => {
                "a model whose loop joins the embedded token has layers before and behind the loop"
            }
            _ => "",
        };
        if !reason.is_empty() {
            return Err(CudaError::Shape { model: architecture.name.clone(), reason });
        }
        let (mut kernels, arch) = (HashMap::new(), device.arch());
        for source in sources(&arch) {
            let image = compile(source, model, &arch)?;
            kernels.extend(source.kernels.iter().copied().zip(device.load(&image, source.kernels)?));
        }
        let ops = Self {
            device: device.clone(),
            lt: Lt::new(device)?,
            kernels,
            invariant,
            heads: architecture.heads as u32,
            kv_heads: architecture.kv_heads() as u32,
            dim_padded: architecture.head_dim.next_multiple_of(16) as u32,
            norm_threads: if architecture.hidden > 4096 { 704 } else { 256 },
            chained: Cell::new(false),
        };
        for (name, kernel) in &ops.kernels {
            if name.starts_with("stream") || name.starts_with("tile") || *name == "prefill_attention" {
                device.allow_shared(*kernel, SHARED_MAX)?;
            }
        }
        Ok(ops)
    }

    pub(super) fn kernel(&self, name: &str) -> Kernel {
        self.kernels[name]
    }

    pub(super) fn launch(
        &self,
        name: &'static str,
        (grid, threads, shared_bytes): ((u32, u32), u32, u32),
        arguments: &mut [*mut std::ffi::c_void],
    ) -> Result<(), CudaError> {
        let early = self.chained.replace(true);
        self.device.launch(self.kernel(name), Shape { grid, threads, shared_bytes, early }, arguments)
    }

    /// Brings tables up to date. The kernel behind it waits for its end, so that all later ones may read tables early.
    pub(super) fn begin(&self, header: Address, tables: Address, counters: (Address, i32)) -> Result<(), CudaError> {
        self.chained.set(false);
        self.launch("begin", ((8, 1), 256, 0), arguments![header, tables, counters.0, counters.1])?;
        self.chained.set(false);
        Ok(())
    }

    pub(super) fn norm(&self, norm: Norm, rows: usize) -> Result<(), CudaError> {
        self.launch("norm_step", ((rows as u32, 1), self.norm_threads, 0), arguments![norm])
    }

    /// Norms all queries and all keys of every row in place.
    pub(super) fn qk_norm(&self, [header, qkv, queries, keys]: [Address; 4], rows: usize) -> Result<(), CudaError> {
        self.launch("qk_norm", ((rows as u32, 2), 256, 0), arguments![header, qkv, queries, keys])
    }

    /// Stores every row's keys and values, for rows that attend to each other.
    pub(super) fn decode_store(&self, attention: DecodeAttention, rows: usize) -> Result<(), CudaError> {
        self.launch("decode_store", ((rows as u32, 1), 256, 0), arguments![attention])
    }

    /// `splits_max` bounds a row's work. A block takes one piece, and more only where the grid is cut.
    pub(super) fn decode_attention(
        &self,
        attention: DecodeAttention,
        (rows, splits_max): (usize, usize),
        stored: bool,
    ) -> Result<(), CudaError> {
        // Blocks take one piece after the other until none is left. A graph has the longest context's blocks in every launch, and
        // a wave of blocks without work takes a microsecond, so there are at most four waves of them.
        let wide = rows <= FEW_ROWS && !self.invariant && !stored;
        let resident = self.device.multiprocessors() * if wide { 2 } else { 4 };
        let blocks = ((rows * splits_max) as u32 * self.kv_heads).min(4 * resident);
        let (name, threads) = match (wide, stored) {
            (true, _) => ("decode_attention_wide", 256),
            (false, false) => ("decode_attention", 128),
            (false, true) => ("decode_attention_stored", 128),
        };
        self.launch(name, ((blocks, 1), threads, 0), arguments![attention])
    }

    pub(super) fn prefill_attention(&self, a: PrefillAttention, tokens: usize, tiles: usize) -> Result<(), CudaError> {
        self.launch("prefill_store", ((tokens as u32, 1), 256, 0), arguments![a])?;
        let shared = 4 * 64 * (self.dim_padded + 8) * 2;
        self.launch("prefill_attention", ((tiles as u32, self.heads), 128, shared), arguments![a])
    }

    pub(super) fn embed(
        &self,
        [header, rows, inputs, table, x]: [Address; 5],
        scale: f32,
        count: usize,
    ) -> Result<(), CudaError> {
        self.launch("embed", ((count as u32, 1), 256, 0), arguments![header, rows, inputs, table, x, scale])
    }

    pub(super) fn start_loop(
        &self,
        [header, rows, x, injected, state]: [Address; 5],
        (by_place, noise): (bool, Option<u64>),
        count: usize,
    ) -> Result<(), CudaError> {
        let (by_place, noisy, seed) = (i32::from(by_place), i32::from(noise.is_some()), noise.unwrap_or(0));
        let shape = ((count as u32, 1), 256, 0);
        self.launch("start_loop", shape, arguments![header, rows, x, injected, state, by_place, noisy, seed])
    }

    pub(super) fn join(
        &self,
        [header, rows, state, injected, joined]: [Address; 5],
        by_place: bool,
        count: usize,
    ) -> Result<(), CudaError> {
        let by_place = i32::from(by_place);
        self.launch("join", ((count as u32, 1), 256, 0), arguments![header, rows, state, injected, joined, by_place])
    }

    pub(super) fn gather(&self, [picks, from, to]: [Address; 3], count: usize) -> Result<(), CudaError> {
        self.launch("gather", ((count as u32, 1), 256, 0), arguments![picks, from, to])
    }

    pub(super) fn sample(&self, sample: Sample, count: usize) -> Result<(), CudaError> {
        self.launch("sample", ((count as u32, 1), 512, 0), arguments![sample])
    }

    pub(super) fn exit_signal(&self, readout: Readout, count: usize) -> Result<(), CudaError> {
        self.launch("exit_signal", ((count as u32, 1), 1024, 0), arguments![readout])
    }

    /// `restores` says that blocks come back from `saved`.
    pub(super) fn move_blocks(
        &self,
        [pool, saved, jobs]: [Address; 3],
        (layers, layer_stride): (usize, u64),
        count: usize,
        restores: bool,
    ) -> Result<(), CudaError> {
        let (grid, layers, restores) = ((count as u32, layers as u32), layers as i32, i32::from(restores));
        self.launch("move_blocks", (grid, 256, 0), arguments![pool, saved, jobs, layers, layer_stride, restores])
    }

    pub(super) fn move_depths(
        &self,
        [depths, saved, jobs]: [Address; 3],
        count: usize,
        restores: bool,
    ) -> Result<(), CudaError> {
        let restores = i32::from(restores);
        self.launch("move_depths", ((count as u32, 1), 32, 0), arguments![depths, saved, jobs, restores])
    }

    pub(super) fn set_tokens(&self, [header, rows, inputs]: [Address; 3]) -> Result<(), CudaError> {
        self.launch("set_tokens", ((1, 1), 256, 0), arguments![header, rows, inputs])
    }

    pub(super) fn fill_noise(&self, to: Address, numbers: u64, seed: u64) -> Result<(), CudaError> {
        self.chained.set(false);
        self.launch("fill_noise", ((1024, 1), 256, 0), arguments![to, numbers, seed])
    }
}
