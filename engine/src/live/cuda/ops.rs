//! One typed caller per kernel; `products.rs` has those of matrix products.

use std::cell::Cell;
use std::collections::HashMap;

use super::arguments::{
    DecodeAttention, Embed, Gather, Join, MoveBlocks, MoveDepths, Norm, PrefillAttention, QkNorm, Readout, Sample,
    StartLoop,
};
use super::compile::{For, compile, sources};
use super::cublaslt::CublasLt;
use super::device::{CudaDevice, Kernel, Shape, arguments};
use super::error::CudaError;
use super::memory::Address;

/// Up to so many rows attention runs in blocks of 8 warps, where every query head has keys of its own.
const FEW_ROWS: usize = 4;

/// Dynamic shared memory that a block may take: Hopper's 227 KB less what kernels declare themselves.
const SHARED_MAX: u32 = 226 << 10;

/// Kernels and libraries, ready for one model.
#[derive(Debug)]
pub(super) struct Ops {
    pub(super) device: CudaDevice,
    pub(super) cublaslt: CublasLt,
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
    pub(super) fn new(device: &CudaDevice, model: For<'_>, invariant: bool) -> Result<Self, CudaError> {
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
            cublaslt: CublasLt::new(device)?,
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

    pub(super) fn qk_norm(&self, norm: QkNorm, rows: usize) -> Result<(), CudaError> {
        let QkNorm { header, qkv, queries, keys } = norm;
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
        let multiprocessors = self.device.multiprocessors();
        let sharing = self.heads / self.kv_heads;
        // Pieces of work for each split of a context: up to 8 heads that share keys and values.
        let units = self.kv_heads * sharing.div_ceil(8);
        let few = if sharing > 1 { rows as u32 * units <= multiprocessors } else { rows <= FEW_ROWS };
        let wide = few && !self.invariant && !stored;
        let (warps, resident, waves) = match (sharing > 1, wide) {
            (false, false) => (4, 4, 4),
            (false, true) => (8, 2, 4),
            (true, false) => (1, if self.dim_padded <= 64 { 16 } else { 12 }, 1),
            (true, true) => (4, 3, 1),
        };
        // Blocks take one piece after the other until none is left. A graph has the longest context's blocks in every launch, and
        // a wave of blocks without work takes a microsecond, so there are few waves of them at most.
        let blocks = ((rows * splits_max) as u32 * units).min(waves * resident * multiprocessors);
        let name = match (wide, stored) {
            (true, _) => "decode_attention_wide",
            (false, false) => "decode_attention",
            (false, true) => "decode_attention_stored",
        };
        self.launch(name, ((blocks, 1), warps * 32, 0), arguments![attention])
    }

    pub(super) fn prefill_attention(&self, a: PrefillAttention, tokens: usize, tiles: usize) -> Result<(), CudaError> {
        self.launch("prefill_store", ((tokens as u32, 1), 256, 0), arguments![a])?;
        let shared = 4 * 64 * (self.dim_padded + 8) * 2;
        self.launch("prefill_attention", ((tiles as u32, self.heads), 128, shared), arguments![a])
    }

    pub(super) fn embed(&self, embed: Embed, count: usize) -> Result<(), CudaError> {
        let Embed { header, rows, inputs, table, x, scale } = embed;
        self.launch("embed", ((count as u32, 1), 256, 0), arguments![header, rows, inputs, table, x, scale])
    }

    pub(super) fn start_loop(&self, start: StartLoop, count: usize) -> Result<(), CudaError> {
        let StartLoop { header, rows, x, injected, state, by_place, noise } = start;
        let (by_place, noisy, seed) = (i32::from(by_place), i32::from(noise.is_some()), noise.unwrap_or(0));
        let shape = ((count as u32, 1), 256, 0);
        self.launch("start_loop", shape, arguments![header, rows, x, injected, state, by_place, noisy, seed])
    }

    pub(super) fn join(&self, join: Join, count: usize) -> Result<(), CudaError> {
        let Join { header, rows, state, injected, joined, by_place } = join;
        let by_place = i32::from(by_place);
        self.launch("join", ((count as u32, 1), 256, 0), arguments![header, rows, state, injected, joined, by_place])
    }

    pub(super) fn gather(&self, Gather { picks, from, to }: Gather, count: usize) -> Result<(), CudaError> {
        self.launch("gather", ((count as u32, 1), 256, 0), arguments![picks, from, to])
    }

    pub(super) fn sample(&self, sample: Sample, count: usize) -> Result<(), CudaError> {
        self.launch("sample", ((count as u32, 1), 512, 0), arguments![sample])
    }

    pub(super) fn exit_signal(&self, readout: Readout, count: usize) -> Result<(), CudaError> {
        self.launch("exit_signal", ((count as u32, 1), 1024, 0), arguments![readout])
    }

    pub(super) fn move_blocks(&self, blocks: MoveBlocks, count: usize) -> Result<(), CudaError> {
        let MoveBlocks { pool, saved, jobs, layers, layer_stride, restores } = blocks;
        let (grid, layers, restores) = ((count as u32, layers as u32), layers as i32, i32::from(restores));
        self.launch("move_blocks", (grid, 256, 0), arguments![pool, saved, jobs, layers, layer_stride, restores])
    }

    pub(super) fn move_depths(&self, moved: MoveDepths, count: usize) -> Result<(), CudaError> {
        let MoveDepths { depths, saved, jobs, restores } = moved;
        let restores = i32::from(restores);
        self.launch("move_depths", ((count as u32, 1), 32, 0), arguments![depths, saved, jobs, restores])
    }

    pub(super) fn set_tokens(&self, header: Address, rows: Address, inputs: Address) -> Result<(), CudaError> {
        self.launch("set_tokens", ((1, 1), 256, 0), arguments![header, rows, inputs])
    }

    pub(super) fn fill_noise(&self, to: Address, numbers: u64, seed: u64) -> Result<(), CudaError> {
        self.chained.set(false);
        self.launch("fill_noise", ((1024, 1), 256, 0), arguments![to, numbers, seed])
    }
}

#[cfg(test)]
mod tests {
    use super::super::memory::Buffer;
    use super::super::upload::items;
    use super::*;
    use crate::architecture::Architecture;
    use crate::batch::Slot;
    use crate::live::Lane;
    use crate::models::criterion::Criterion;
    use crate::request::RequestId;
    use crate::units::Depth;

    const BLOCK_TOKENS: usize = 4;
    const PLANES: usize = 3;
    const POSITIONS: [usize; 7] = [0, 5, 126, 127, 128, 300, 647];

    /// A draw of 16 bits.
    fn draw(i: usize, seed: u32) -> u32 {
        ((i as u32).wrapping_add(seed << 24).wrapping_mul(0x9e37_79b9).rotate_left(13).wrapping_mul(0x85eb_ca6b)) >> 16
    }

    /// Numbers in [-2, 2) as bf16 keeps them.
    fn numbers(count: usize, seed: u32) -> Vec<half::bf16> {
        (0..count).map(|i| half::bf16::from_f32(draw(i, seed) as f32 / 16384.0 - 2.0)).collect()
    }

    /// One layer's decode attention: every row has a slot, a page table and, for each position, a depth of its own.
    struct Attention {
        ops: Ops,
        /// Query heads, KV heads, width of a head.
        shape: [usize; 3],
        tables: Vec<i32>,
        depths: Vec<u8>,
        pool: Vec<half::bf16>,
        qkv: Vec<half::bf16>,
    }

    impl Attention {
        const PAGES: usize = POSITIONS[6] / BLOCK_TOKENS + 1;

        fn new(device: &CudaDevice, shape: [usize; 3]) -> Self {
            let [heads, kv_heads, head_dim] = shape.map(|n| n as u64);
            let tiny = Architecture::builtin("tiny-ouro").unwrap();
            let architecture = Architecture { heads, kv_heads: Some(kv_heads), head_dim, ..tiny };
            // What else a model needs takes long to compile.
            let source = sources(&device.arch()).find(|source| source.file == "attention_decode.cu").unwrap();
            let model =
                For { architecture: &architecture, block_tokens: BLOCK_TOKENS as u32, criterion: Criterion::Hazard };
            let image = compile(source, model, &device.arch()).unwrap();
            let kernels = source.kernels.iter().copied().zip(device.load(&image, source.kernels).unwrap()).collect();
            let ops = Ops {
                device: device.clone(),
                cublaslt: CublasLt::new(device).unwrap(),
                kernels,
                invariant: true,
                heads: heads as u32,
                kv_heads: kv_heads as u32,
                dim_padded: head_dim.next_multiple_of(16) as u32,
                norm_threads: 0,
                chained: Cell::new(false),
            };
            let pages = Self::PAGES * POSITIONS.len();
            let [heads, kv_heads, head_dim] = shape;
            Self {
                ops,
                shape,
                tables: (0..pages).map(|i| ((i * 7919) % pages) as i32).collect(),
                depths: (0..pages * BLOCK_TOKENS).map(|i| 1 + (draw(i, 1) % 3) as u8).collect(),
                pool: numbers(pages * PLANES * 2 * kv_heads * BLOCK_TOKENS * head_dim, 2),
                qkv: numbers(POSITIONS.len() * (heads + 2 * kv_heads) * head_dim, 3),
            }
        }

        fn depth(row: usize) -> u8 {
            1 + (row % PLANES) as u8
        }

        /// What the rows leave, [row][head][channel]. `stored`: all keys are stored first, and the last are read then.
        fn run(&mut self, rows: &[usize], (invariant, stored): (bool, bool)) -> Vec<half::bf16> {
            let device = self.ops.device.clone();
            self.ops.invariant = invariant;
            let [heads, kv_heads, head_dim] = self.shape;
            let lane = |&row: &usize| Lane {
                slot: Slot(row as u32),
                request: RequestId(row as u32),
                position: POSITIONS[row] as u32,
                place: 0,
                depth: Depth(Self::depth(row)),
                token: None,
                fresh: (POSITIONS[row] as u32).saturating_sub(if stored { 20 } else { 0 }),
                leaves: true,
            };
            let lanes: Vec<Lane> = rows.iter().map(lane).collect();
            let items = items(&lanes);
            let upload = |bytes: &[u8]| {
                let buffer = Buffer::new(&device, bytes.len(), "a test's").unwrap();
                buffer.write(&device, 0, bytes).unwrap();
                buffer
            };
            let zeros = |bytes| Buffer::zeroed(&device, bytes, "a test's").unwrap();
            let width = (heads + 2 * kv_heads) * head_dim;
            let qkv: Vec<half::bf16> = rows.iter().flat_map(|&row| self.qkv[row * width..][..width].to_vec()).collect();
            let header = upload(bytemuck::cast_slice(&[rows.len() as i32, items.len() as i32, 0, 0]));
            let row_data = upload(bytemuck::cast_slice(&super::super::upload::rows(&lanes)));
            let item_data = upload(bytemuck::cast_slice(&items));
            let qkv = upload(bytemuck::cast_slice(&qkv));
            // Turned by nothing.
            let factors = [1.0_f32, 0.0].repeat((POSITIONS[6] + 1) * head_dim / 2);
            let factors = upload(bytemuck::cast_slice(&factors));
            let pool = upload(bytemuck::cast_slice(&self.pool));
            let tables = upload(bytemuck::cast_slice(&self.tables));
            let depths = upload(&self.depths);
            let parts = zeros(items.len() * heads * head_dim * 4);
            let (part_sums, arrived, next) = (zeros(items.len() * heads * 8), zeros(rows.len() * heads * 4), zeros(4));
            let out = zeros(rows.len() * heads * head_dim * 2);
            let attention = DecodeAttention {
                header: header.address(),
                rows: row_data.address(),
                items: item_data.address(),
                qkv: qkv.address(),
                qk_bias: 0,
                factors: factors.address(),
                pool: pool.address(),
                tables: tables.address(),
                depths: depths.address(),
                parts: parts.address(),
                part_sums: part_sums.address(),
                arrived: arrived.address(),
                next: next.address(),
                out: out.address(),
                pages_max: Self::PAGES as i32,
                planes: PLANES as i32,
                layout: 1,
                boundary: 0,
                depth: 0,
                marks_depth: 1,
            };
            self.ops.chained.set(false);
            if stored {
                self.ops.decode_store(attention, rows.len()).unwrap();
            }
            self.ops.decode_attention(attention, (rows.len(), 6), stored).unwrap();
            device.synchronize().unwrap();
            assert!(
                arrived.read::<u32>(rows.len() * heads).unwrap().iter().all(|&n| n == 0),
                "counters are at rest again"
            );
            out.read::<u16>(rows.len() * heads * head_dim).unwrap().into_iter().map(half::bf16::from_bits).collect()
        }

        /// The same of one row in f64.
        fn exact(&self, row: usize) -> Vec<f64> {
            let [heads, kv_heads, head_dim] = self.shape;
            let width = (heads + 2 * kv_heads) * head_dim;
            let wide = |x: &[half::bf16]| -> Vec<f64> { x.iter().map(|x| x.to_f64()).collect() };
            let qkv = wide(&self.qkv[row * width..][..width]);
            let mut out = Vec::new();
            for head in 0..heads {
                let kv_head = head / (heads / kv_heads);
                let (mut total, mut sums) = (0.0, vec![0.0; head_dim]);
                for token in 0..=POSITIONS[row] {
                    let page = self.tables[row * Self::PAGES + token / BLOCK_TOKENS] as usize;
                    let offset = token % BLOCK_TOKENS;
                    let depth = Self::depth(row).min(self.depths[page * BLOCK_TOKENS + offset]);
                    let block = page * PLANES + usize::from(depth) - 1;
                    let part = |part: usize| match token == POSITIONS[row] {
                        true => qkv[(heads + part * kv_heads + kv_head) * head_dim..][..head_dim].to_vec(),
                        false => {
                            let at = ((block * 2 + part) * kv_heads + kv_head) * BLOCK_TOKENS + offset;
                            wide(&self.pool[at * head_dim..][..head_dim])
                        }
                    };
                    let query = &qkv[head * head_dim..][..head_dim];
                    let score: f64 = query.iter().zip(part(0)).map(|(q, k)| q * k).sum();
                    let p = (score / (head_dim as f64).sqrt()).exp();
                    total += p;
                    sums.iter_mut().zip(part(1)).for_each(|(sum, value)| *sum += p * value);
                }
                out.extend(sums.into_iter().map(|sum| sum / total));
            }
            out
        }
    }

    #[test]
    #[ignore = "needs a CUDA device"]
    fn decode_attention_is_right_whatever_shares_its_batch() {
        let device = CudaDevice::open(0).unwrap();
        for shape in [[2, 2, 128], [6, 1, 128], [8, 2, 64], [20, 2, 32], [3, 1, 24], [10, 2, 96]] {
            let mut attention = Attention::new(&device, shape);
            let width = shape[0] * shape[2];
            let all: Vec<usize> = (0..POSITIONS.len()).collect();
            let together = attention.run(&all, (true, false));
            assert_eq!(attention.run(&all, (true, true)), together, "{shape:?}: keys that are stored first");
            let mut largest = 0.0_f64;
            for &row in &all {
                let row_together = &together[row * width..][..width];
                assert_eq!(attention.run(&[row], (true, false)), row_together, "{shape:?}: row {row} alone");
                // Few rows have a kernel of their own where bits may depend on their number.
                let alone = attention.run(&[row], (false, false));
                for (i, exact) in attention.exact(row).into_iter().enumerate() {
                    for got in [row_together[i], alone[i]] {
                        let error = (got.to_f64() - exact).abs();
                        // Half a unit of bf16's last place, and what f32 and probabilities of 16 bits leave.
                        assert!(error < exact.abs() / 256.0 + 1e-4, "{shape:?}, row {row}, {i}: {got}, not {exact}");
                        largest = largest.max(error - exact.abs() / 256.0);
                    }
                }
            }
            println!("{shape:?}: beyond rounding {largest:.1e}");
        }
    }
}
