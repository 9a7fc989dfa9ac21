//! Looped models as plain loops in f64: no pages, no batches, one sequence at a time, every loop's KV kept.
//!
//! It shares nothing with the executors but the tensors, and what a family's description says of them. Rounding to bf16 is optional, at the places at
//! which the released models round.

mod ops;
mod signals;

use std::collections::BTreeMap;

use engine::architecture::Architecture;
use engine::layout::Layout;
use engine::live::weights::Weights;
use engine::models::family::{After, LayerNames, Looping, TensorNames};

use self::ops::{dot, matvec, sigmoid};
pub(crate) use self::signals::{argmax, distance, divergence, entropy};

pub(crate) type Vector = Vec<f64>;

/// A key and a value by (loop, position).
type Entries = BTreeMap<(usize, usize), (Vector, Vector)>;

/// A model in f64.
pub(crate) struct DenseModel {
    architecture: Architecture,
    names: TensorNames,
    tensors: BTreeMap<String, Vector>,
    bf16: bool,
}

/// One sequence to generate.
pub(crate) struct Job<'a> {
    pub(crate) prompt: &'a [u32],
    /// How the prompt is cut for prefill; adds up to its length.
    pub(crate) chunks: &'a [usize],
    pub(crate) outputs: usize,
    pub(crate) layout: Layout,
    pub(crate) r_max: usize,
    /// The initial state by position and channel, where the loop has one of its own.
    pub(crate) initial: &'a dyn Fn(usize, usize) -> f64,
    /// Whether a token leaves.
    pub(crate) leaves: &'a dyn Fn(&Token<'_>) -> bool,
    /// Compute the logits that `leaves` sees.
    pub(crate) reads_logits: bool,
}

/// An output token on its way through the loop.
pub(crate) struct Token<'a> {
    pub(crate) index: usize,
    /// `[0]` is the first state, `[r]` follows loop r.
    pub(crate) states: &'a [Vector],
    /// `[r - 1]` are the logits that it gives if it leaves after loop r; none unless the job reads them.
    pub(crate) logits: &'a [Vector],
}

impl Token<'_> {
    /// Loops that ran.
    pub(crate) fn depth(&self) -> usize {
        self.states.len() - 1
    }
}

/// What came out.
#[derive(Default)]
pub(crate) struct Generated {
    pub(crate) tokens: Vec<u32>,
    pub(crate) depths: Vec<usize>,
    pub(crate) logits: Vec<Vector>,
}

/// The KV of one sequence: by layer, then (loop, position); boundary layers count as loop 0.
#[derive(Clone, Default)]
struct Kv {
    layers: BTreeMap<String, Entries>,
    /// By position, the loop after which the token left.
    exits: Vec<usize>,
}

/// Tokens that run together, and the loop that they are in (0 outside).
struct Chunk {
    first: usize,
    depth: usize,
}

impl DenseModel {
    pub(crate) fn new(architecture: &Architecture, weights: &Weights, bf16: bool) -> Self {
        let tensors = weights
            .iter()
            .map(|(name, tensor)| (name.to_owned(), tensor.to_f32().iter().map(|&x| f64::from(x)).collect()))
            .collect();
        let names = (architecture.family.tensors)(architecture);
        Self { architecture: architecture.clone(), names, tensors, bf16 }
    }

    /// Of the noise that a job's initial state may be.
    pub(crate) fn noise_std(&self) -> f32 {
        self.architecture.noise_std()
    }

    pub(crate) fn generate(&self, job: &Job<'_>) -> Generated {
        let mut kv = Kv::default();
        let mut out = Generated::default();
        let mut tokens = job.prompt.to_vec();
        let mut first = 0;
        for &chunk in job.chunks {
            let (logits, depth) = self.step(job, &mut kv, &tokens[first..first + chunk], first, None);
            first += chunk;
            if first == job.prompt.len() {
                out.push(logits, depth);
            }
        }
        assert_eq!(first, job.prompt.len(), "the chunks add up to the prompt");
        while out.tokens.len() < job.outputs {
            tokens.push(*out.tokens.last().unwrap());
            let position = tokens.len() - 1;
            let index = out.tokens.len();
            let (logits, depth) = self.step(job, &mut kv, &tokens[position..], position, Some(index));
            out.push(logits, depth);
        }
        out
    }

    /// Runs tokens of which the last one's logits matter; returns them and the depth at which the tokens left. Output token
    /// `index` may leave early.
    fn step(&self, job: &Job<'_>, kv: &mut Kv, tokens: &[u32], first: usize, index: Option<usize>) -> (Vector, usize) {
        let looping = self.architecture.form().looping;
        let mut x: Vec<Vector> = tokens.iter().map(|&token| self.embed(token)).collect();
        let boundary = Chunk { first, depth: 0 };
        for layer in &self.names.prelude {
            x = self.block(layer, x, job, kv, &boundary);
        }
        let injected = x.clone();
        if looping != Looping::Carries {
            let channels = 0..self.architecture.hidden as usize;
            for (i, x) in x.iter_mut().enumerate() {
                *x = channels.clone().map(|channel| self.round((job.initial)(first + i, channel))).collect();
            }
        }
        let mut states = vec![x.last().unwrap().clone()];
        let mut read_out = Vec::new();
        let mut depth = 0;
        loop {
            depth += 1;
            x = self.core(x, &injected, job, kv, &Chunk { first, depth });
            states.push(x.last().unwrap().clone());
            if depth == job.r_max {
                break;
            }
            let Some(index) = index else { continue };
            if job.reads_logits {
                // On a copy of the cache: to be read out on the way leaves no trace.
                read_out.push(self.end(x.clone(), job, &mut kv.clone(), &boundary));
            }
            if (job.leaves)(&Token { index, states: &states, logits: &read_out }) {
                break;
            }
        }
        kv.exits.resize(first + tokens.len(), depth);
        (self.end(x, job, kv, &boundary), depth)
    }

    /// What follows the loop: the last token's logits.
    fn end(&self, mut x: Vec<Vector>, job: &Job<'_>, kv: &mut Kv, boundary: &Chunk) -> Vector {
        if let Looping::Injects { norm_before_coda } = self.architecture.form().looping {
            let normed = |x: Vec<Vector>| x.iter().map(|x| self.norm(x, &self.names.final_norm)).collect();
            if norm_before_coda {
                x = normed(x);
            }
            for layer in &self.names.coda {
                x = self.block(layer, x, job, kv, boundary);
            }
            x = normed(x);
        }
        matvec(self.tensor(&self.names.head), x.last().unwrap())
    }

    fn embed(&self, token: u32) -> Vector {
        let hidden = self.architecture.hidden as usize;
        let scale = if self.architecture.form().scales_embedding { (hidden as f64).sqrt() } else { 1.0 };
        let row = &self.tensor(&self.names.embedding)[token as usize * hidden..][..hidden];
        row.iter().map(|e| self.round(e * scale)).collect()
    }

    fn core(&self, mut x: Vec<Vector>, injected: &[Vector], job: &Job<'_>, kv: &mut Kv, chunk: &Chunk) -> Vec<Vector> {
        if let Some(adapter) = &self.names.adapter {
            let joined = |(s, e): (&Vector, &Vector)| self.linear(adapter, &[&s[..], e].concat());
            x = x.iter().zip(injected).map(joined).collect();
        }
        for layer in &self.names.core {
            x = self.block(layer, x, job, kv, chunk);
        }
        match self.architecture.form().looping {
            Looping::Carries => x.iter().map(|x| self.norm(x, &self.names.final_norm)).collect(),
            Looping::Injects { .. } => x,
        }
    }

    fn block(&self, layer: &LayerNames, x: Vec<Vector>, job: &Job<'_>, kv: &mut Kv, chunk: &Chunk) -> Vec<Vector> {
        let after = self.architecture.form().norms.after;
        let norm = |x: &[f64], name: &Option<String>| match name {
            Some(name) => self.norm(x, name),
            None => x.to_vec(),
        };
        let joined = |x: &[f64], branch: Vector, name: &Option<String>| match after {
            After::Nothing => self.add(x, &branch),
            After::Branch => self.add(x, &norm(&branch, name)),
            After::Sum => norm(&self.add(x, &branch), name),
        };
        let [before_attention, after_attention, before_mlp, after_mlp] = &layer.norms;
        let normed = x.iter().map(|x| norm(x, before_attention)).collect();
        let attended = self.attention(layer, normed, job, kv, chunk);
        let h = x.iter().zip(attended).map(|(x, a)| joined(x, a, after_attention));
        h.map(|h| joined(&h, self.mlp(layer, &norm(&h, before_mlp)), after_mlp)).collect()
    }

    fn attention(&self, layer: &LayerNames, x: Vec<Vector>, job: &Job<'_>, kv: &mut Kv, chunk: &Chunk) -> Vec<Vector> {
        let dim = self.architecture.head_dim as usize;
        let sharing = (self.architecture.heads / self.architecture.kv_heads()) as usize;
        let mut queries = Vec::new();
        for (i, x) in x.iter().enumerate() {
            let position = chunk.first + i;
            let (mut q, mut k, v) = self.qkv(layer, x);
            q.chunks_exact_mut(dim).chain(k.chunks_exact_mut(dim)).for_each(|head| self.rotate(position, head));
            kv.layers.entry(layer.out.clone()).or_default().insert((chunk.depth, position), (k, v));
            queries.push(q);
        }
        let entries = &kv.layers[&layer.out];
        let attend = |(i, q): (usize, &Vector)| {
            let position = chunk.first + i;
            let context: Vec<&(Vector, Vector)> = (0..=position)
                .map(|other| {
                    let depth = if other >= chunk.first {
                        chunk.depth
                    } else {
                        visible(job.layout, chunk.depth, kv.exits[other])
                    };
                    &entries[&(depth, other)]
                })
                .collect();
            let mut mixed = Vec::new();
            for head in 0..self.architecture.heads as usize {
                let part = |head: usize| head * dim..(head + 1) * dim;
                let (query, part) = (&q[part(head)], part(head / sharing));
                let scores = context.iter().map(|(k, _)| dot(query, &k[part.clone()]) / (dim as f64).sqrt());
                let weights: Vector = scores.map(f64::exp).collect();
                let sum: f64 = weights.iter().sum();
                mixed.extend(part.map(|channel| {
                    let value = weights.iter().zip(&context).map(|(w, (_, v))| w * v[channel]).sum::<f64>();
                    self.round(value / sum)
                }));
            }
            self.linear(&layer.out, &mixed)
        };
        queries.iter().enumerate().map(attend).collect()
    }

    fn qkv(&self, layer: &LayerNames, x: &[f64]) -> (Vector, Vector, Vector) {
        let mut q: Vector = layer.qkv.iter().flat_map(|name| self.linear(name, x)).collect();
        let mut k = q.split_off(self.architecture.query_width() as usize);
        let v = k.split_off(self.architecture.kv_width() as usize);
        if let Some(name) = &layer.qk_bias {
            let biased = q.iter().chain(&k).zip(self.tensor(name)).map(|(x, bias)| self.round(x + bias));
            let mut biased: Vector = biased.collect();
            k = biased.split_off(q.len());
            q = biased;
        }
        if let Some([of_queries, of_keys]) = &layer.qk_norm {
            (q, k) = (self.norm(&q, of_queries), self.norm(&k, of_keys));
        }
        (q, k, v)
    }

    fn mlp(&self, layer: &LayerNames, x: &[f64]) -> Vector {
        let mut gate: Vector = layer.gate_up.iter().flat_map(|name| self.linear(name, x)).collect();
        let up = gate.split_off(self.architecture.ffn as usize);
        let gated: Vector = gate.iter().zip(&up).map(|(g, u)| self.round(self.round(g * sigmoid(*g)) * u)).collect();
        self.linear(&layer.down, &gated)
    }
}

impl Generated {
    fn push(&mut self, logits: Vector, depth: usize) {
        self.tokens.push(argmax(&logits) as u32);
        self.depths.push(depth);
        self.logits.push(logits);
    }
}

/// The loop whose KV a loop at `depth` sees of an earlier token that left after `exit` (the paper's Figure 2).
fn visible(layout: Layout, depth: usize, exit: usize) -> usize {
    match (depth, layout) {
        (0, _) => 0,
        (_, Layout::DepthIndexed) => depth,
        (_, Layout::LastExited) => depth.min(exit),
        (1, Layout::FirstThenShared) => 1,
        (_, Layout::Shared | Layout::FirstThenShared) => exit,
    }
}
