//! Looped models as plain loops in f64: no pages, no batches, one sequence at a time, every loop's KV kept.
//!
//! It shares nothing with the executors but the tensors and the shapes. Rounding to bf16 is optional, at the places at
//! which the released models round.

mod ops;

use std::collections::BTreeMap;

use engine::architecture::{Architecture, Family};
use engine::layout::Layout;
use engine::models::weights::Weights;

use self::ops::{dot, matvec, sigmoid};

pub(crate) type Vector = Vec<f64>;

/// A key and a value by (loop, position).
type Entries = BTreeMap<(usize, usize), (Vector, Vector)>;

/// A model in f64.
pub(crate) struct DenseModel {
    architecture: Architecture,
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
    /// Huginn's initial state by position and channel.
    pub(crate) initial: &'a dyn Fn(usize, usize) -> f64,
    /// Whether output token `.0` leaves, given its states so far: `.1[0]` is the first, `.1[r]` follows loop r.
    pub(crate) leaves: &'a dyn Fn(usize, &[Vector]) -> bool,
}

/// What came out.
#[derive(Default)]
pub(crate) struct Generated {
    pub(crate) tokens: Vec<u32>,
    pub(crate) depths: Vec<usize>,
    pub(crate) logits: Vec<Vector>,
}

/// The KV of one sequence: by layer, then (loop, position); boundary layers count as loop 0.
#[derive(Default)]
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
        Self { architecture: architecture.clone(), tensors, bf16 }
    }

    pub(crate) fn generate(&self, job: &Job<'_>) -> Generated {
        let mut kv = Kv::default();
        let mut out = Generated::default();
        let mut tokens = job.prompt.to_vec();
        let mut first = 0;
        for &chunk in job.chunks {
            let full_depth = |_: &[Vector]| false;
            let (logits, depth) = self.step(job, &mut kv, &tokens[first..first + chunk], first, &full_depth);
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
            let leaves = |states: &[Vector]| (job.leaves)(index, states);
            let (logits, depth) = self.step(job, &mut kv, &tokens[position..], position, &leaves);
            out.push(logits, depth);
        }
        out
    }

    /// Runs tokens of which the last one's logits matter; returns them and the depth at which the tokens left.
    fn step(
        &self,
        job: &Job<'_>,
        kv: &mut Kv,
        tokens: &[u32],
        first: usize,
        leaves: &dyn Fn(&[Vector]) -> bool,
    ) -> (Vector, usize) {
        let family = self.architecture.family;
        let mut x: Vec<Vector> = tokens.iter().map(|&token| self.embed(token)).collect();
        let boundary = Chunk { first, depth: 0 };
        for layer in 0..self.architecture.prelude_layers {
            x = self.block(&format!("transformer.prelude.{layer}"), x, job, kv, &boundary);
        }
        let injected = x.clone();
        if family == Family::HUGINN {
            let channels = 0..self.architecture.hidden as usize;
            for (i, x) in x.iter_mut().enumerate() {
                *x = channels.clone().map(|channel| self.round((job.initial)(first + i, channel))).collect();
            }
        }
        let mut states = vec![x.last().unwrap().clone()];
        let mut depth = 0;
        loop {
            depth += 1;
            x = self.core(x, &injected, job, kv, &Chunk { first, depth });
            states.push(x.last().unwrap().clone());
            if depth == job.r_max || leaves(&states) {
                break;
            }
        }
        kv.exits.resize(first + tokens.len(), depth);
        if family == Family::HUGINN {
            x = x.iter().map(|x| self.norm(x, "transformer.ln_f.weight")).collect();
            for layer in 0..self.architecture.coda_layers {
                x = self.block(&format!("transformer.coda.{layer}"), x, job, kv, &boundary);
            }
            x = x.iter().map(|x| self.norm(x, "transformer.ln_f.weight")).collect();
        }
        let embedding = match family {
            Family::OURO => "model.embed_tokens.weight",
            Family::HUGINN => "transformer.wte.weight",
        };
        let head = if self.architecture.tied_head() { embedding } else { "lm_head.weight" };
        (matvec(self.tensor(head), x.last().unwrap()), depth)
    }

    fn embed(&self, token: u32) -> Vector {
        let hidden = self.architecture.hidden as usize;
        let (name, scale) = match self.architecture.family {
            Family::OURO => ("model.embed_tokens.weight", 1.0),
            Family::HUGINN => ("transformer.wte.weight", (hidden as f64).sqrt()),
        };
        self.tensor(name)[token as usize * hidden..][..hidden].iter().map(|e| self.round(e * scale)).collect()
    }

    fn core(&self, x: Vec<Vector>, injected: &[Vector], job: &Job<'_>, kv: &mut Kv, chunk: &Chunk) -> Vec<Vector> {
        let layers = 0..self.architecture.core_layers;
        match self.architecture.family {
            Family::OURO => {
                let x = layers.fold(x, |x, layer| self.block(&format!("model.layers.{layer}"), x, job, kv, chunk));
                x.iter().map(|x| self.norm(x, "model.norm.weight")).collect()
            }
            Family::HUGINN => {
                let joined = x.iter().zip(injected).map(|(s, e)| {
                    let joined: Vector = s.iter().chain(e).copied().collect();
                    self.linear("transformer.adapter.weight", &joined)
                });
                let x = joined.collect();
                layers.fold(x, |x, layer| self.block(&format!("transformer.core_block.{layer}"), x, job, kv, chunk))
            }
        }
    }

    fn block(&self, name: &str, x: Vec<Vector>, job: &Job<'_>, kv: &mut Kv, chunk: &Chunk) -> Vec<Vector> {
        match self.architecture.family {
            Family::OURO => {
                let norm = |x: &[f64], norm: &str| self.norm(x, &format!("{name}.{norm}.weight"));
                let normed = x.iter().map(|x| norm(x, "input_layernorm")).collect();
                let attended = self.attention(name, normed, job, kv, chunk);
                let h = x.iter().zip(&attended).map(|(x, a)| self.add(x, &norm(a, "input_layernorm_2")));
                h.map(|h| {
                    let y = self.mlp(name, &norm(&h, "post_attention_layernorm"));
                    self.add(&h, &norm(&y, "post_attention_layernorm_2"))
                })
                .collect()
            }
            Family::HUGINN => {
                let norm = |x: &[f64], i: u32| self.norm(x, &format!("{name}.norm_{i}.weight"));
                let normed = x.iter().map(|x| norm(x, 1)).collect();
                let attended = self.attention(name, normed, job, kv, chunk);
                let h = x.iter().zip(&attended).map(|(x, a)| norm(&self.add(x, a), 2));
                h.map(|h| norm(&self.add(&self.mlp(name, &norm(&h, 3)), &h), 4)).collect()
            }
        }
    }

    fn attention(&self, name: &str, x: Vec<Vector>, job: &Job<'_>, kv: &mut Kv, chunk: &Chunk) -> Vec<Vector> {
        let dim = self.architecture.head_dim as usize;
        let sharing = (self.architecture.heads / self.architecture.kv_heads()) as usize;
        let mut queries = Vec::new();
        for (i, x) in x.iter().enumerate() {
            let position = chunk.first + i;
            let (mut q, mut k, v) = self.qkv(name, x);
            q.chunks_exact_mut(dim).chain(k.chunks_exact_mut(dim)).for_each(|head| self.rotate(position, head));
            kv.layers.entry(name.to_owned()).or_default().insert((chunk.depth, position), (k, v));
            queries.push(q);
        }
        let out = if self.architecture.family == Family::OURO { "self_attn.o_proj" } else { "attn.proj" };
        let entries = &kv.layers[name];
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
            self.linear(&format!("{name}.{out}.weight"), &mixed)
        };
        queries.iter().enumerate().map(attend).collect()
    }

    fn qkv(&self, name: &str, x: &[f64]) -> (Vector, Vector, Vector) {
        match self.architecture.family {
            Family::OURO => {
                let project = |p: &str| self.linear(&format!("{name}.self_attn.{p}_proj.weight"), x);
                (project("q"), project("k"), project("v"))
            }
            Family::HUGINN => {
                let qkv = self.linear(&format!("{name}.attn.Wqkv.weight"), x);
                let bias = self.tensor(&format!("{name}.attn.qk_bias"));
                let queries = self.architecture.query_width() as usize;
                let mut turned: Vector = qkv.iter().zip(bias).map(|(x, bias)| self.round(x + bias)).collect();
                let values = qkv[bias.len()..].to_vec();
                let keys = turned.split_off(queries);
                (turned, keys, values)
            }
        }
    }

    fn mlp(&self, name: &str, x: &[f64]) -> Vector {
        let (gate, up, down) = match self.architecture.family {
            Family::OURO => {
                let project = |p: &str| self.linear(&format!("{name}.mlp.{p}_proj.weight"), x);
                (project("gate"), project("up"), "mlp.down_proj")
            }
            Family::HUGINN => {
                let mut gate = self.linear(&format!("{name}.mlp.fc.weight"), x);
                let up = gate.split_off(self.architecture.ffn as usize);
                (gate, up, "mlp.proj")
            }
        };
        let gated: Vector = gate.iter().zip(&up).map(|(g, u)| self.round(self.round(g * sigmoid(*g)) * u)).collect();
        self.linear(&format!("{name}.{down}.weight"), &gated)
    }
}

impl Generated {
    fn push(&mut self, logits: Vector, depth: usize) {
        let mut best = 0;
        for (i, logit) in logits.iter().enumerate() {
            if *logit > logits[best] {
                best = i;
            }
        }
        self.tokens.push(best as u32);
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
