//! The stages as sequences of kernels, the same for decode (rows by slot, one token each) and prefill (packed tokens).

use super::arguments::{DecodeAttention, Embed, Join, Norm, PrefillAttention, QkNorm, Sample, StartLoop};
use super::error::CudaError;
use super::memory::Address;
use super::model::{DeviceModel, Layer};
use super::ops::Ops;
use super::products::Phase;
use super::store::{Pool, Store};
use super::upload::SPLIT;
use crate::layout::Layout;
use crate::models::criterion::Criterion;
use crate::models::family::Looping;
use crate::models::initial_state::InitialState;
use crate::units::Depth;

/// Which layers run, and where their KV lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Region {
    Boundary {
        first: usize,
    },
    /// All rows at one depth, or each at its own (0).
    Core {
        depth: u8,
    },
}

/// What follows a part's last layer.
#[derive(Clone, Copy, Debug, Default)]
struct End {
    final_norm: Address,
    next_norm: Address,
    x_out: Address,
    y_out: Address,
    state: Address,
    signals: Address,
}

/// How the rows of this batch are laid out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rows {
    pub(super) phase: Phase,
    /// Rows that kernels are launched for: the bucket in decode, all tokens in prefill.
    pub(super) count: usize,
    pub(super) header: Address,
    pub(super) rows: Address,
    /// Decode: work items; prefill: query tiles.
    pub(super) parts: Address,
    pub(super) tiles: usize,
}

/// Everything that a stage needs.
pub(super) struct StageRun<'a> {
    pub(super) ops: &'a Ops,
    pub(super) model: &'a DeviceModel,
    pub(super) store: &'a Store,
    pub(super) rows: Rows,
    pub(super) layout: Layout,
    pub(super) initial_state: InitialState,
    pub(super) r_max: Depth,
    /// What rows are judged by after a loop.
    pub(super) criterion: Criterion,
    /// Rows attend to each other, so all store their keys first.
    pub(super) spans: bool,
    /// Attention launches so far, each of which has a work counter.
    pub(super) launches: i32,
}

impl StageRun<'_> {
    fn decode(&self) -> bool {
        self.rows.phase == Phase::Decode
    }

    fn state(&self) -> Address {
        if self.decode() { self.store.positions.state.address() } else { self.store.scratch.token_state.address() }
    }

    fn injected(&self) -> Address {
        if self.decode() {
            self.store.positions.injected.address()
        } else {
            self.store.scratch.token_injected.address()
        }
    }

    fn norm(&self, norm: Norm) -> Result<(), CudaError> {
        let by_place = i32::from(self.decode());
        let (header, rows) = (self.rows.header, self.rows.rows);
        self.ops.norm(Norm { header, rows, state_by_place: by_place, ..norm }, self.rows.count)
    }

    /// Reads rows from the looped states.
    fn norm_states(&self, norm: Norm) -> Result<(), CudaError> {
        self.norm(Norm { x: self.state(), x_by_place: i32::from(self.decode()), ..norm })
    }

    /// Embedding and the layers before the loop.
    pub(super) fn prelude(&mut self) -> Result<(), CudaError> {
        let (s, m) = (self.store, self.model);
        let form = m.architecture.form();
        let scale = if form.scales_embedding { (m.architecture.hidden as f32).sqrt() } else { 1.0 };
        let (header, rows, x, y) = (self.rows.header, self.rows.rows, s.scratch.x.address(), s.scratch.y.address());
        let inputs = s.positions.inputs.address();
        self.ops.embed(Embed { header, rows, inputs, table: m.embedding, x, scale }, self.rows.count)?;
        if !form.injects() {
            return self.norm(Norm { x, state: self.state(), ..Norm::default() });
        }
        self.norm(Norm { x, next_norm: m.prelude[0].norms[0], y_out: y, ..Norm::default() })?;
        let end = End { x_out: x, ..End::default() };
        self.layers(&m.prelude, Region::Boundary { first: 0 }, end)?;
        let noise = match self.initial_state {
            InitialState::Zero => None,
            InitialState::Noise { seed } => Some(seed),
        };
        let (injected, state, by_place) = (self.injected(), self.state(), self.decode());
        self.ops.start_loop(StartLoop { header, rows, x, injected, state, by_place, noise }, self.rows.count)
    }

    /// One loop. `depth` 0: each row's own.
    pub(super) fn core(&mut self, depth: u8) -> Result<(), CudaError> {
        let (s, m) = (self.store, self.model);
        let (x, y) = (s.scratch.x.address(), s.scratch.y.address());
        let first = m.core[0].norms[0];
        match &m.adapter {
            None => self.norm_states(Norm { next_norm: first, x_out: x, y_out: y, ..Norm::default() })?,
            Some(adapter) => {
                let joined = s.scratch.joined.address();
                let (header, rows, by_place) = (self.rows.header, self.rows.rows, self.decode());
                let (state, injected) = (self.state(), self.injected());
                self.ops.join(Join { header, rows, state, injected, joined, by_place }, self.rows.count)?;
                self.ops.linear(adapter, (joined, x), self.rows.count, self.rows.phase)?;
                self.norm(Norm { x, next_norm: first, y_out: y, ..Norm::default() })?;
            }
        }
        self.layers(&m.core, Region::Core { depth }, self.core_end())
    }

    /// The state and, in decode, the exit signal that it gives by itself.
    fn core_end(&self) -> End {
        let (s, m) = (self.store, self.model);
        let final_norm = if m.architecture.form().injects() { 0 } else { m.final_norm };
        let signals =
            if self.decode() && !self.criterion.reads_logits() { s.scratch.results.at(s.signals_at()) } else { 0 };
        End { final_norm, state: self.state(), signals, ..End::default() }
    }

    /// The norm behind a part's last layer, or between two layers.
    fn end_norm(&self, sum: Norm, end: End) -> Result<(), CudaError> {
        let mut norm = Norm {
            final_norm: end.final_norm,
            next_norm: end.next_norm,
            x_out: end.x_out,
            y_out: end.y_out,
            state: end.state,
            signals: end.signals,
            ..sum
        };
        if end.signals != 0 {
            norm.gates = self.model.gates.map(|gate| gate.0);
            norm.biases = self.model.gates.map(|gate| gate.1);
        }
        self.norm(norm)
    }

    /// The layers behind the loop, up to the LM head's input in `y`.
    pub(super) fn coda(&mut self) -> Result<(), CudaError> {
        let (s, m) = (self.store, self.model);
        let (x, y) = (s.scratch.x.address(), s.scratch.y.address());
        let Looping::Injects { norm_before_coda } = m.architecture.form().looping else {
            return self.norm_states(Norm { x_out: y, ..Norm::default() });
        };
        let (before, next_norm) = (if norm_before_coda { m.final_norm } else { 0 }, m.coda[0].norms[0]);
        self.norm_states(Norm { final_norm: before, next_norm, x_out: x, y_out: y, ..Norm::default() })?;
        let end = End { final_norm: m.final_norm, x_out: y, ..End::default() };
        self.layers(&m.coda, Region::Boundary { first: m.prelude.len() }, end)
    }

    /// LM head and the choice of a token for `count` rows of `x`, drawn as (`header`, `draws`) say.
    pub(super) fn emit(&self, (header, draws): (Address, Address), x: Address, count: usize) -> Result<(), CudaError> {
        let s = self.store;
        let logits = s.scratch.logits.address();
        self.ops.logits(&self.model.head, (x, logits), count)?;
        let (inputs, chosen) = (s.positions.inputs.address(), s.scratch.results.address());
        self.ops.sample(Sample { header, draws, logits, inputs, chosen }, count)
    }

    /// Layers over `x` (the residual stream) and `y` (its norm), each ending with the norm that the next begins with.
    fn layers(&mut self, layers: &[Layer], region: Region, end: End) -> Result<(), CudaError> {
        let s = self.store;
        let (x, y, z) = (s.scratch.x.address(), s.scratch.y.address(), s.scratch.branch.address());
        let (count, phase) = (self.rows.count, self.rows.phase);
        for (i, layer) in layers.iter().enumerate() {
            let [_, after_attention, before_mlp, after_mlp] = layer.norms;
            self.ops.linear(&layer.qkv, (y, s.scratch.qkv.address()), count, phase)?;
            if let Some([queries, keys]) = layer.qk_norm {
                let (header, qkv) = (self.rows.header, s.scratch.qkv.address());
                self.ops.qk_norm(QkNorm { header, qkv, queries, keys }, count)?;
            }
            self.attention(layer, i, region)?;
            let shares = self.ops.branch(&layer.out, (s.scratch.attended.address(), z), count, phase)?;
            let sum = Norm { x, branch: z, shares, branch_norm: after_attention, ..Norm::default() };
            self.norm(Norm { next_norm: before_mlp, x_out: x, y_out: y, ..sum })?;
            self.ops.gated(layer, (y, s.scratch.wide.address(), s.scratch.gated.address()), count, phase)?;
            let shares = self.ops.branch(&layer.down, (s.scratch.gated.address(), z), count, phase)?;
            let end = match layers.get(i + 1) {
                Some(next) => End { next_norm: next.norms[0], x_out: x, y_out: y, ..End::default() },
                None => end,
            };
            self.end_norm(Norm { shares, branch_norm: after_mlp, ..sum }, end)?;
        }
        Ok(())
    }

    fn attention(&mut self, layer: &Layer, index: usize, region: Region) -> Result<(), CudaError> {
        let s = self.store;
        let (pool, place): (&Pool, usize) = match region {
            Region::Boundary { first } => (&s.kv.boundary, first + index),
            Region::Core { .. } => (&s.kv.core, index),
        };
        let (boundary, depth) = match region {
            Region::Boundary { .. } => (1, 0),
            Region::Core { depth } => (0, i32::from(depth)),
        };
        let (planes, tables) = (s.kv.planes as i32, s.kv.tables.address());
        let layout = match self.layout {
            Layout::DepthIndexed => 0,
            Layout::LastExited => 1,
            Layout::Shared => 2,
            Layout::FirstThenShared => 3,
        };
        let marks_depth = i32::from(boundary == 0 && index == 0);
        let pages_max = s.kv.pages_max as i32;
        let (qkv, factors, depths) = (s.scratch.qkv.address(), s.kv.factors.address(), s.kv.depths.address());
        if !self.decode() {
            let attention = PrefillAttention {
                header: self.rows.header,
                tokens: self.rows.rows,
                tiles: self.rows.parts,
                qkv,
                qk_bias: layer.qk_bias,
                factors,
                pool: pool.layer(place),
                tables,
                depths,
                out: s.scratch.attended.address(),
                pages_max,
                planes,
                layout,
                boundary,
                depth,
                marks_depth,
            };
            return self.ops.prefill_attention(attention, self.rows.count, self.rows.tiles);
        }
        let next = s.scratch.counters.at(self.launches as usize * 4);
        self.launches += 1;
        let attention = DecodeAttention {
            header: self.rows.header,
            rows: self.rows.rows,
            items: self.rows.parts,
            qkv,
            qk_bias: layer.qk_bias,
            factors,
            pool: pool.layer(place),
            tables,
            depths,
            parts: s.scratch.parts.address(),
            part_sums: s.scratch.part_sums.address(),
            arrived: s.scratch.arrived.address(),
            next,
            out: s.scratch.attended.address(),
            pages_max,
            planes,
            layout,
            boundary,
            depth,
            marks_depth,
        };
        if self.spans {
            self.ops.decode_store(attention, self.rows.count)?;
        }
        let splits_max = s.kv.context_max.div_ceil(SPLIT as usize);
        self.ops.decode_attention(attention, (self.rows.count, splits_max), self.spans)
    }
}
