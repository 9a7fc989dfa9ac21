//! A looped model's weights in the shape in which the CPU runs them, and its stages as functions of activations.

use super::element::Element;
use super::exp::sigmoid;
use super::kv::KvPool;
use super::lanes::Lanes;
use super::layer::{Cache, Layer};
use super::linear::Linear;
use super::matrix::Matrix;
use super::norm::{rms_norm, rms_norm_in_place, sum_of_squares};
use super::rope::Rope;
use crate::architecture::{Architecture, Family};
use crate::models::tensor::Tensor;
use crate::models::tensor_names::{Part, huginn_block, ouro_layer};
use crate::models::weights::Weights;

/// See the module's text.
#[derive(Debug)]
pub(super) struct Model<E> {
    pub(super) family: Family,
    pub(super) hidden: usize,
    pub(super) vocab: usize,
    embedding: Tensor,
    prelude: Vec<Layer<E>>,
    core: Vec<Layer<E>>,
    coda: Vec<Layer<E>>,
    /// Huginn: joins the state and the injected embedding.
    adapter: Option<Linear<E>>,
    final_norm: Vec<f32>,
    head: Linear<E>,
    released_gate: Option<HazardGate>,
    lookahead_gate: Option<HazardGate>,
    pub(super) rope: Rope<E>,
}

/// A hazard from a state: `sigmoid(w . h + b)`, in f32 without rounding in between.
#[derive(Debug)]
struct HazardGate {
    weight: Vec<f32>,
    bias: f32,
}

impl<E: Element> Model<E> {
    pub(super) fn new(architecture: &Architecture, weights: &Weights) -> Self {
        let part = |part, layers: u64| (0..layers as usize).map(|i| huginn_layer(weights, part, i)).collect();
        let (prelude, core, coda): (Vec<_>, Vec<_>, Vec<_>) = match architecture.family {
            Family::Ouro => {
                let core = (0..architecture.core_layers as usize).map(|i| ouro_block(weights, i)).collect();
                (Vec::new(), core, Vec::new())
            }
            Family::Huginn => (
                part(Part::Prelude, architecture.prelude_layers),
                part(Part::Core, architecture.core_layers),
                part(Part::Coda, architecture.coda_layers),
            ),
        };
        let (embedding, head, final_norm) = match architecture.family {
            Family::Ouro => ("model.embed_tokens.weight", "lm_head.weight", "model.norm.weight"),
            Family::Huginn => ("transformer.wte.weight", "transformer.wte.weight", "transformer.ln_f.weight"),
        };
        let adapter = weights.get("transformer.adapter.weight").map(|weight| Linear::stack(&[weight]));
        Self {
            family: architecture.family,
            hidden: architecture.hidden as usize,
            vocab: architecture.vocab as usize,
            embedding: weights.tensor(embedding).clone(),
            prelude,
            core,
            coda,
            adapter,
            final_norm: vector::<E>(weights, final_norm),
            head: Linear::stack(&[weights.tensor(head)]),
            released_gate: HazardGate::find::<E>(weights, "model.early_exit_gate"),
            lookahead_gate: HazardGate::find::<E>(weights, "lookahead_gate"),
            rope: Rope::new(architecture.family, architecture.head_dim as usize),
        }
    }

    /// Embeddings; Huginn's are multiplied by the root of the width.
    pub(super) fn embed(&self, tokens: impl ExactSizeIterator<Item = u32>) -> Matrix {
        let mut x = Matrix::zeros(tokens.len(), self.hidden);
        let scale = match self.family {
            Family::Ouro => 1.0,
            Family::Huginn => (self.hidden as f32).sqrt(),
        };
        for (row, token) in tokens.enumerate() {
            let embedding = self.embedding.row(token as usize);
            x.row_mut(row).iter_mut().zip(embedding).for_each(|(x, e)| *x = E::round(E::round(e) * scale));
        }
        x
    }

    /// The layers before the loop. For Ouro there are none, and the embedding is the loop's first state.
    pub(super) fn prelude(&self, x: Matrix, lanes: &Lanes, pool: &mut KvPool<E>) -> Matrix {
        self.layers(&self.prelude, x, lanes, pool, 0)
    }

    /// One loop: Ouro ends it with the final norm, Huginn begins it with the adapter over state and `injected`.
    pub(super) fn core(&self, state: Matrix, injected: &Matrix, lanes: &Lanes, pool: &mut KvPool<E>) -> Matrix {
        match &self.adapter {
            None => {
                let mut state = self.layers(&self.core, state, lanes, pool, 0);
                rms_norm_in_place::<E>(&mut state, &self.final_norm);
                state
            }
            Some(adapter) => {
                let mut joined = Matrix::zeros(state.rows(), 2 * self.hidden);
                for row in 0..state.rows() {
                    let (left, right) = joined.row_mut(row).split_at_mut(self.hidden);
                    left.copy_from_slice(state.row(row));
                    right.copy_from_slice(injected.row(row));
                }
                self.layers(&self.core, adapter.apply(&joined), lanes, pool, 0)
            }
        }
    }

    /// What follows the loop, up to the LM head: nothing for Ouro, whose state is normed already.
    pub(super) fn coda(&self, state: Matrix, lanes: &Lanes, pool: &mut KvPool<E>) -> Matrix {
        match self.family {
            Family::Ouro => state,
            Family::Huginn => {
                let x = rms_norm::<E>(&state, &self.final_norm);
                // In the boundary pool the coda's layers come behind the prelude's.
                let mut x = self.layers(&self.coda, x, lanes, pool, self.prelude.len());
                rms_norm_in_place::<E>(&mut x, &self.final_norm);
                x
            }
        }
    }

    /// Logits, in f32.
    pub(super) fn logits(&self, x: &Matrix) -> Matrix {
        self.head.apply_unrounded(x)
    }

    /// The hazards of the released gate and of the lookahead gate; 0 where there is none.
    pub(super) fn hazards(&self, state: &[f32]) -> [f32; 2] {
        let hazard = |gate: &Option<HazardGate>| gate.as_ref().map_or(0.0, |gate| gate.hazard(state));
        [hazard(&self.released_gate), hazard(&self.lookahead_gate)]
    }

    fn layers(&self, layers: &[Layer<E>], x: Matrix, lanes: &Lanes, pool: &mut KvPool<E>, first: usize) -> Matrix {
        layers.iter().enumerate().fold(x, |x, (i, layer)| {
            let cache = Cache { pool: &mut *pool, layer: first + i };
            layer.run(self.family, x, lanes, cache, &self.rope)
        })
    }
}

impl HazardGate {
    fn find<E: Element>(weights: &Weights, name: &str) -> Option<Self> {
        weights.get(&format!("{name}.weight"))?;
        let bias = vector::<E>(weights, &format!("{name}.bias"))[0];
        Some(Self { weight: vector::<E>(weights, &format!("{name}.weight")), bias })
    }

    fn hazard(&self, state: &[f32]) -> f32 {
        sigmoid(state.iter().zip(&self.weight).map(|(x, w)| x * w).sum::<f32>() + self.bias)
    }
}

/// `|s - previous| / |s|`: Huginn's measure of convergence, in f32.
pub(super) fn distance(state: &[f32], previous: &[f32]) -> f32 {
    let difference: Vec<f32> = state.iter().zip(previous).map(|(s, p)| s - p).collect();
    (sum_of_squares(&difference) / sum_of_squares(state)).sqrt()
}

/// A vector rounded to the element type.
fn vector<E: Element>(weights: &Weights, name: &str) -> Vec<f32> {
    E::convert(weights.tensor(name)).into_iter().map(Element::widen).collect()
}

fn ouro_block<E: Element>(weights: &Weights, layer: usize) -> Layer<E> {
    let tensor = |name: &str| weights.tensor(&ouro_layer(layer, name));
    let norm = |name: &str| vector::<E>(weights, &ouro_layer(layer, name));
    Layer {
        norms: [
            norm("input_layernorm"),
            norm("input_layernorm_2"),
            norm("post_attention_layernorm"),
            norm("post_attention_layernorm_2"),
        ],
        qkv: Linear::stack(&["q", "k", "v"].map(|p| tensor(&format!("self_attn.{p}_proj")))),
        qk_bias: None,
        out: Linear::stack(&[tensor("self_attn.o_proj")]),
        gate_up: Linear::stack(&[tensor("mlp.gate_proj"), tensor("mlp.up_proj")]),
        down: Linear::stack(&[tensor("mlp.down_proj")]),
    }
}

fn huginn_layer<E: Element>(weights: &Weights, part: Part, block: usize) -> Layer<E> {
    let name = |tensor: &str| huginn_block(part, block, tensor);
    let linear = |tensor: &str| Linear::stack(&[weights.tensor(&name(tensor))]);
    Layer {
        norms: [1, 2, 3, 4].map(|i| vector::<E>(weights, &name(&format!("norm_{i}.weight")))),
        qkv: linear("attn.Wqkv.weight"),
        qk_bias: Some(vector::<E>(weights, &name("attn.qk_bias"))),
        out: linear("attn.proj.weight"),
        gate_up: linear("mlp.fc.weight"),
        down: linear("mlp.proj.weight"),
    }
}
