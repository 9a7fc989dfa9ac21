//! One typed caller per kernel, and the choice of who multiplies: our skinny kernel, our tiles, or cuBLASLt.

use std::cell::Cell;
use std::collections::HashMap;

use super::arguments::{DecodeAttention, Fused, Norm, PrefillAttention, Sample};
use super::compile::{compile, sources};
use super::device::{Device, Kernel, Shape, arguments};
use super::error::CudaError;
use super::lt::{Lt, Product};
use super::memory::Address;
use super::model::{Inputs, Layer, Linear};
use crate::architecture::{Architecture, Family};

/// Up to so many rows our own GEMM streams the weights faster than cuBLASLt, see `reports/h200`.
pub(super) const SKINNY_ROWS_MAX: usize = 8;

/// Warps of a skinny GEMM's block, which split K.
pub(super) const SKINNY_WARPS: usize = 16;

/// Dynamic shared memory that a block may take: Hopper's 227 KB less what kernels declare themselves.
const SHARED_MAX: u32 = 226 << 10;

/// What a GEMM is part of. Batch-invariant mode has one kernel for each, whatever the number of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Decode,
    Prefill,
}

/// Kernels and libraries, ready for one model.
#[derive(Debug)]
pub(super) struct Ops {
    pub(super) device: Device,
    lt: Lt,
    kernels: HashMap<&'static str, Kernel>,
    invariant: bool,
    heads: u32,
    dim_padded: u32,
    norm_threads: u32,
    /// The next kernel may start before the one queued last has ended.
    chained: Cell<bool>,
}

impl Ops {
    pub(super) fn new(
        device: &Device,
        architecture: &Architecture,
        block_tokens: u32,
        invariant: bool,
    ) -> Result<Self, CudaError> {
        let reason = match architecture {
            a if a.hidden % 8 > 0 || a.ffn % 8 > 0 || a.head_dim % 8 > 0 || a.vocab % 8 > 0 => {
                "hidden, ffn, head_dim and vocab must be multiples of 8: rows are read 16 bytes at a time"
            }
            a if a.head_dim > 128 => "head_dim must be at most 128",
            a if a.family == Family::Ouro && a.prelude_layers + a.coda_layers > 0 => {
                "Ouro has no layers outside the loop"
            }
            _ => "",
        };
        if !reason.is_empty() {
            return Err(CudaError::Shape { model: architecture.name.clone(), reason });
        }
        let mut kernels = HashMap::new();
        for source in sources(architecture.family) {
            let image = compile(source, architecture, block_tokens, &device.arch())?;
            kernels.extend(source.kernels.iter().copied().zip(device.load(&image, source.kernels)?));
        }
        let ops = Self {
            device: device.clone(),
            lt: Lt::new(device)?,
            kernels,
            invariant,
            heads: architecture.heads as u32,
            dim_padded: architecture.head_dim.next_multiple_of(16) as u32,
            norm_threads: if architecture.hidden > 4096 { 704 } else { 256 },
            chained: Cell::new(false),
        };
        for (name, kernel) in &ops.kernels {
            if ["skinny", "fused", "ring"].iter().any(|kind| name.starts_with(kind))
                || name.starts_with("tile")
                || *name == "prefill_attention"
            {
                device.allow_shared(*kernel, SHARED_MAX)?;
            }
        }
        Ok(ops)
    }

    pub(super) fn kernel(&self, name: &str) -> Kernel {
        self.kernels[name]
    }

    fn launch(
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

    /// `y = x W^T` in bf16.
    pub(super) fn linear(
        &self,
        l: &Linear,
        (x, y): (Address, Address),
        rows: usize,
        phase: Phase,
    ) -> Result<(), CudaError> {
        let ring = match l.kind {
            Inputs::Attention => Some(["ring_attention_1", "ring_attention_8"]),
            Inputs::Ffn => Some(["ring_ffn_1", "ring_ffn_8"]),
            Inputs::Hidden | Inputs::Joined => None,
        };
        if let Some(names) = ring.filter(|_| self.fuses(rows, phase)) {
            return self.ring(names, (l.weights, x, y), (l.outputs, l.outputs / 8, l.inputs), rows);
        }
        if self.is_skinny(rows, phase) {
            let name = match l.kind {
                Inputs::Hidden => ["skinny_hidden_8", "skinny_hidden_16"],
                Inputs::Attention => ["skinny_attention_8", "skinny_attention_16"],
                Inputs::Ffn => ["skinny_ffn_8", "skinny_ffn_16"],
                Inputs::Joined => ["skinny_joined_8", "skinny_joined_16"],
            };
            return self.skinny(name, (l.weights, x, y), (l.outputs, l.outputs / 8, l.inputs), rows);
        }
        self.large(l, (x, y), rows, false)
    }

    /// Logits in f32. Few rows even in prefill, and always the decode kernel in batch-invariant mode.
    pub(super) fn logits(&self, head: &Linear, (x, y): (Address, Address), rows: usize) -> Result<(), CudaError> {
        if self.fuses(rows, Phase::Decode) {
            return self.ring(
                ["ring_logits_1", "ring_logits_8"],
                (head.weights, x, y),
                (head.outputs, head.outputs / 8, head.inputs),
                rows,
            );
        }
        if self.is_skinny(rows, Phase::Decode) {
            let names = ["skinny_logits_8", "skinny_logits_16"];
            return self.skinny(names, (head.weights, x, y), (head.outputs, head.outputs / 8, head.inputs), rows);
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
        let ffn = l.outputs / 2;
        if self.is_skinny(rows, phase) {
            let names = ["skinny_gated_8", "skinny_gated_16"];
            return self.skinny(names, (l.weights, x, y), (ffn, ffn / 4, l.inputs), rows);
        }
        self.large(l, (x, wide), rows, false)?;
        let vectors = (rows * ffn / 8) as u64;
        let blocks = vectors.div_ceil(256).min(u64::from(self.device.multiprocessors()) * 8) as u32;
        self.launch("silu", ((blocks, 1), 256, 0), arguments![wide, y, vectors])
    }

    fn ring(
        &self,
        names: [&'static str; 2],
        (weights, x, y): (Address, Address, Address),
        (outputs, tiles, inputs): (usize, usize, usize),
        rows: usize,
    ) -> Result<(), CudaError> {
        let blocks = (self.device.multiprocessors() as usize).min(tiles);
        let (outputs, count) = (outputs as i32, rows as i32);
        let shape = ((blocks as u32, 1), 32 * SKINNY_WARPS as u32, ring_shared_bytes(inputs, rows) as u32);
        self.launch(names[usize::from(rows > 1)], shape, arguments![weights, x, y, outputs, count])
    }

    /// Whether GEMMs of so many decode rows go through the ring and take the norms in front of them along.
    pub(super) fn fuses(&self, rows: usize, phase: Phase) -> bool {
        let compiled = self.kernels.contains_key("fused_hidden_8");
        compiled && !self.invariant && phase == Phase::Decode && rows <= SKINNY_ROWS_MAX
    }

    /// Queries, keys and values of a sum's norm.
    pub(super) fn fused_qkv(&self, layer: &Layer, fused: Fused) -> Result<(), CudaError> {
        let l = &layer.qkv;
        let fused = Fused { weights: l.weights, outputs: l.outputs as i32, ..fused };
        self.fused(["fused_hidden_1", "fused_hidden_8"], (l.outputs / 8, l.inputs), fused)
    }

    /// The gated MLP's activations of a sum's norm.
    pub(super) fn fused_gated(&self, layer: &Layer, fused: Fused) -> Result<(), CudaError> {
        let l = &layer.gate_up;
        let fused = Fused { weights: l.weights, outputs: (l.outputs / 2) as i32, ..fused };
        self.fused(["fused_gated_1", "fused_gated_8"], (l.outputs / 8, l.inputs), fused)
    }

    fn fused(&self, names: [&'static str; 2], (tiles, inputs): (usize, usize), fused: Fused) -> Result<(), CudaError> {
        let blocks = (self.device.multiprocessors() as usize).min(tiles);
        // The norms' weights lie behind the rows that the kernel has room for.
        let rows = if fused.count == 1 { 1 } else { 8 };
        let shared = (ring_shared_bytes(inputs, rows) + 2 * inputs * 2) as u32;
        let name = names[usize::from(rows > 1)];
        self.launch(name, ((blocks as u32, 1), 32 * SKINNY_WARPS as u32, shared), arguments![fused])
    }

    fn is_skinny(&self, rows: usize, phase: Phase) -> bool {
        if self.invariant { phase == Phase::Decode } else { rows <= SKINNY_ROWS_MAX }
    }

    fn skinny(
        &self,
        names: [&'static str; 2],
        (weights, x, y): (Address, Address, Address),
        (outputs, tiles, inputs): (usize, usize, usize),
        rows: usize,
    ) -> Result<(), CudaError> {
        let (name, at_once) = if rows <= 8 { (names[0], 8) } else { (names[1], 16) };
        let blocks = (self.device.multiprocessors() as usize).min(tiles);
        let shared = skinny_shared_bytes(inputs, at_once, tiles.div_ceil(blocks));
        let grid = (blocks as u32, rows.div_ceil(at_once) as u32);
        let (outputs, rows) = (outputs as i32, rows as i32);
        self.launch(name, (grid, 32 * SKINNY_WARPS as u32, shared as u32), arguments![weights, x, y, outputs, rows])
    }

    fn large(&self, l: &Linear, (x, y): (Address, Address), rows: usize, f32_out: bool) -> Result<(), CudaError> {
        if !self.invariant {
            let product = Product { rows, outputs: l.outputs, inputs: l.inputs, f32_out };
            return self.lt.multiply(&self.device, product, (l.weights, x, y));
        }
        let name = if f32_out { "tile_f32" } else { "tile_bf16" };
        let grid = (l.outputs.div_ceil(128) as u32, rows.div_ceil(128) as u32);
        let (weights, inputs, outputs, rows) = (l.weights, l.inputs as i32, l.outputs as i32, rows as i32);
        self.launch(name, (grid, 256, 2 * 4 * 128 * 40 * 2), arguments![weights, x, y, inputs, outputs, rows])
    }

    pub(super) fn norm(&self, norm: Norm, rows: usize) -> Result<(), CudaError> {
        self.launch("norm_step", ((rows as u32, 1), self.norm_threads, 0), arguments![norm])
    }

    /// `splits_max` bounds a row's work. A block takes one piece, and more only where the grid is cut.
    pub(super) fn decode_attention(
        &self,
        attention: DecodeAttention,
        (rows, splits_max): (usize, usize),
    ) -> Result<(), CudaError> {
        // Blocks take one piece after the other until none is left. Those of 1024 tokens a row get a block each, which is faster;
        // but a graph has the longest context's blocks in every launch, and a wave of blocks without work takes a microsecond.
        let wide = rows <= 4 && !self.invariant;
        let resident = self.device.multiprocessors() * if wide { 2 } else { 4 };
        let usual = (rows * splits_max.min(8)) as u32 * self.heads;
        let blocks = ((rows * splits_max) as u32 * self.heads).min(usual.max(2 * resident));
        match wide {
            true => self.launch("decode_attention_wide", ((blocks, 1), 256, 0), arguments![attention]),
            false => self.launch("decode_attention", ((blocks, 1), 128, 0), arguments![attention]),
        }
    }

    pub(super) fn prefill_attention(&self, a: PrefillAttention, tokens: usize, tiles: usize) -> Result<(), CudaError> {
        self.launch("prefill_store", ((tokens as u32, 1), 256, 0), arguments![a])?;
        let shared = 4 * 64 * (self.dim_padded + 8) * 2;
        self.launch("prefill_attention", ((tiles as u32, self.heads), 128, shared), arguments![a])
    }

    pub(super) fn embed(
        &self,
        [header, rows, last_tokens, table, x]: [Address; 5],
        scale: f32,
        count: usize,
    ) -> Result<(), CudaError> {
        self.launch("embed", ((count as u32, 1), 256, 0), arguments![header, rows, last_tokens, table, x, scale])
    }

    pub(super) fn start_loop(
        &self,
        [header, rows, x, injected, state]: [Address; 5],
        (by_slot, noise): (bool, Option<u64>),
        count: usize,
    ) -> Result<(), CudaError> {
        let (by_slot, noisy, seed) = (i32::from(by_slot), i32::from(noise.is_some()), noise.unwrap_or(0));
        let shape = ((count as u32, 1), 256, 0);
        self.launch("start_loop", shape, arguments![header, rows, x, injected, state, by_slot, noisy, seed])
    }

    pub(super) fn join(
        &self,
        [header, rows, state, injected, joined]: [Address; 5],
        by_slot: bool,
        count: usize,
    ) -> Result<(), CudaError> {
        let by_slot = i32::from(by_slot);
        self.launch("join", ((count as u32, 1), 256, 0), arguments![header, rows, state, injected, joined, by_slot])
    }

    pub(super) fn gather(&self, [picks, from, to]: [Address; 3], count: usize) -> Result<(), CudaError> {
        self.launch("gather", ((count as u32, 1), 256, 0), arguments![picks, from, to])
    }

    pub(super) fn sample(&self, sample: Sample, count: usize) -> Result<(), CudaError> {
        self.launch("sample", ((count as u32, 1), 512, 0), arguments![sample])
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
        [depths, saved]: [Address; 2],
        [slot, context_max, tokens]: [i32; 3],
        restores: bool,
    ) -> Result<(), CudaError> {
        let restores = i32::from(restores);
        self.launch("move_depths", ((1, 1), 256, 0), arguments![depths, saved, slot, context_max, tokens, restores])
    }

    pub(super) fn set_tokens(&self, [header, rows, last_tokens]: [Address; 3]) -> Result<(), CudaError> {
        self.launch("set_tokens", ((1, 1), 256, 0), arguments![header, rows, last_tokens])
    }

    pub(super) fn fill_noise(&self, to: Address, numbers: u64, seed: u64) -> Result<(), CudaError> {
        self.chained.set(false);
        self.launch("fill_noise", ((1024, 1), 256, 0), arguments![to, numbers, seed])
    }
}

/// Shared memory of `Ring<inputs, _, _>` for so many rows, by the rules of `ring.cuh`.
fn ring_shared_bytes(inputs: usize, rows: usize) -> usize {
    let stages = if rows == 1 { 5 } else { 4 };
    let stride = inputs.next_multiple_of(64) + 32;
    SKINNY_WARPS * stages * 1024 + 4 * SKINNY_WARPS * 64 * 4 + rows * stride * 2
}

/// Shared memory of `Skinny<rows, inputs, _>`, by the rules of `gemm_skinny.cu`.
fn skinny_shared_bytes(inputs: usize, rows: usize, tiles: usize) -> usize {
    let (chunks, fewest) = (inputs.div_ceil(32), inputs.div_ceil(5632));
    let even = |passes: &usize| fewest > 1 && chunks % (passes * SKINNY_WARPS) == 0;
    let passes = (fewest..2 * fewest).find(even).unwrap_or(fewest);
    let pass_chunks = chunks.div_ceil(passes);
    let warp_chunks = pass_chunks.div_ceil(SKINNY_WARPS);
    let width = pass_chunks.div_ceil(warp_chunks) * warp_chunks * 32;
    let stride = width + (96 - width % 64) % 64;
    let group = if rows == 8 { 16 } else { 4 };
    let carried = if passes > 1 { tiles * rows * 8 * 4 } else { 0 };
    rows * stride * 2 + group * SKINNY_WARPS * rows * 8 * 4 + carried
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn activations_of_every_layer_fit_in_shared_memory() {
        for (inputs, outputs) in [(2048, 6144), (5632, 2048), (5280, 65_536), (10_560, 5280), (17_920, 5280)] {
            for rows in [8, 16] {
                let bytes = skinny_shared_bytes(inputs, rows, (outputs as usize / 8).div_ceil(132));
                assert!(bytes <= SHARED_MAX as usize, "{inputs} inputs, {rows} rows: {bytes} bytes");
            }
        }
    }
}
