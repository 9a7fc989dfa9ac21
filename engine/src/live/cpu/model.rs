//! A looped model's weights in the shape in which the CPU runs them, and its stages as functions of activations.

use super::element::Element;
use super::exp::sigmoid;
use super::kv::KvPool;
use super::lanes::Lanes;
use super::layer::{Cache, Layer};
use super::linear::Linear;
use super::matrix::Matrix;
use super::norm::{Norm, sum_of_squares};
use super::rope::Rope;
use crate::architecture::Architecture;
use crate::live::weights::Weights;
use crate::live::weights::tensor::Tensor;
use crate::models::family::{Form, LOOKAHEAD_GATE, LayerNames, Looping};

/// See the module's text.
#[derive(Debug)]
pub(super) struct CpuModel<E> {
    pub(super) form: Form,
    /// Of the noise from which a loop may start.
    pub(super) noise_std: f32,
    pub(super) hidden: usize,
    pub(super) vocab: usize,
    embedding: Tensor,
    prelude: Vec<Layer<E>>,
    core: Vec<Layer<E>>,
    coda: Vec<Layer<E>>,
    /// Joins the state and the embedded token.
    adapter: Option<Linear<E>>,
    final_norm: Norm,
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

impl<E: Element> CpuModel<E> {
    pub(super) fn new(architecture: &Architecture, weights: &Weights) -> Self {
        let names = (architecture.family.tensors)(architecture);
        let norm = |name: &str| Norm { weight: vector::<E>(weights, name), epsilon: architecture.norm_epsilon() };
        let stack = |names: &[String]| {
            let tensors: Vec<&Tensor> = names.iter().map(|name| weights.tensor(name)).collect();
            Linear::stack(&tensors)
        };
        let one = |name: &str| Linear::stack(&[weights.tensor(name)]);
        let layer = |names: &LayerNames| Layer {
            norms: names.norms.each_ref().map(|name| name.as_deref().map(norm)),
            qkv: stack(&names.qkv),
            qk_bias: names.qk_bias.as_ref().map(|name| vector::<E>(weights, name)),
            qk_norm: names.qk_norm.as_ref().map(|names| names.each_ref().map(|name| norm(name))),
            out: one(&names.out),
            gate_up: stack(&names.gate_up),
            down: one(&names.down),
        };
        let [prelude, core, coda] =
            [&names.prelude, &names.core, &names.coda].map(|part| part.iter().map(layer).collect());
        Self {
            form: architecture.form(),
            noise_std: architecture.noise_std(),
            hidden: architecture.hidden as usize,
            vocab: architecture.vocab as usize,
            embedding: weights.tensor(&names.embedding).clone(),
            prelude,
            core,
            coda,
            adapter: names.adapter.as_deref().map(one),
            final_norm: norm(&names.final_norm),
            head: one(&names.head),
            released_gate: names.gate.as_deref().and_then(|gate| HazardGate::find::<E>(weights, gate)),
            lookahead_gate: HazardGate::find::<E>(weights, LOOKAHEAD_GATE),
            rope: Rope::new(architecture),
        }
    }

    /// Embeddings, multiplied by the root of the width where the family does so.
    pub(super) fn embed(&self, tokens: impl ExactSizeIterator<Item = u32>) -> Matrix {
        let mut x = Matrix::zeros(tokens.len(), self.hidden);
        let scale = if self.form.scales_embedding { (self.hidden as f32).sqrt() } else { 1.0 };
        for (row, token) in tokens.enumerate() {
            let embedding = self.embedding.row(token as usize);
            x.row_mut(row).iter_mut().zip(embedding).for_each(|(x, e)| *x = E::round(E::round(e) * scale));
        }
        x
    }

    /// The layers before the loop.
    pub(super) fn prelude(&self, x: Matrix, lanes: &Lanes, pool: &mut KvPool<E>) -> Matrix {
        self.layers(&self.prelude, x, lanes, pool, 0)
    }

    /// One loop: it begins with the adapter over state and `injected`, or ends with the final norm.
    pub(super) fn core(&self, state: Matrix, injected: &Matrix, lanes: &Lanes, pool: &mut KvPool<E>) -> Matrix {
        match &self.adapter {
            None => {
                let mut state = self.layers(&self.core, state, lanes, pool, 0);
                self.final_norm.apply::<E>(&mut state);
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

    /// What follows the loop, up to the LM head: nothing where every loop ends with the final norm.
    pub(super) fn coda(&self, state: Matrix, lanes: &Lanes, pool: &mut KvPool<E>) -> Matrix {
        let x = match self.form.looping {
            Looping::Carries => return state,
            Looping::Injects { norm_before_coda: true } => self.final_norm.of::<E>(&state),
            Looping::Injects { norm_before_coda: false } => state,
        };
        // In the boundary pool the coda's layers come behind the prelude's.
        let mut x = self.layers(&self.coda, x, lanes, pool, self.prelude.len());
        self.final_norm.apply::<E>(&mut x);
        x
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
            layer.run(self.form.norms.after, x, lanes, cache, &self.rope)
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

/// `|s - previous| / |s|`: a measure of convergence, in f32.
pub(super) fn distance(state: &[f32], previous: &[f32]) -> f32 {
    let difference: Vec<f32> = state.iter().zip(previous).map(|(s, p)| s - p).collect();
    (sum_of_squares(&difference) / sum_of_squares(state)).sqrt()
}

/// A vector rounded to the element type.
fn vector<E: Element>(weights: &Weights, name: &str) -> Vec<f32> {
    E::convert(weights.tensor(name)).into_iter().map(Element::widen).collect()
}
