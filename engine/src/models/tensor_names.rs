//! The tensors that a model consists of: released names, shapes, and how a random model fills them.

use crate::architecture::{Architecture, Family};

/// One tensor that a model needs.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorSpec {
    /// The name in the released files.
    pub name: String,
    /// Dimensions, outermost first.
    pub shape: Vec<usize>,
    /// What a random model puts there.
    pub fill: Fill,
}

/// A uniform distribution for random weights; no number is zero, so that no term of a sum goes untested.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fill {
    /// Where it is centred.
    pub mean: f32,
    /// Its standard deviation.
    pub std: f32,
}

/// Norm weights: near one, but not one, so that a forgotten norm shows.
const NORM: Fill = Fill { mean: 1.0, std: 0.15 };

/// Ouro's norms of a branch's output: small against the residual stream, as in a trained model. With branches as large
/// as the stream a random model is chaotic, and two roundings of it have nothing in common after a few loops.
const BRANCH_NORM: Fill = Fill { mean: 0.3, std: 0.05 };

/// Tensors that a file may hold and that are not read.
pub fn ignored(family: Family) -> &'static [&'static str] {
    match family {
        Family::Ouro => &[],
        // RoPE's angles are computed, and the LM head is tied to the embedding.
        Family::Huginn => &["freqs_cis", "lm_head.weight"],
    }
}

/// Tensors that a file may hold and that are then used: the separately trained lookahead gate.
pub fn optional(architecture: &Architecture) -> Vec<TensorSpec> {
    match architecture.family {
        Family::Ouro => gate("lookahead_gate", architecture),
        Family::Huginn => Vec::new(),
    }
}

/// Every tensor that the model needs.
pub fn required(architecture: &Architecture) -> Vec<TensorSpec> {
    match architecture.family {
        Family::Ouro => ouro(architecture),
        Family::Huginn => huginn(architecture),
    }
}

/// The name of an Ouro layer's tensor.
pub fn ouro_layer(layer: usize, tensor: &str) -> String {
    format!("model.layers.{layer}.{tensor}.weight")
}

/// The part of Huginn to which a block belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Before the loop.
    Prelude,
    /// In the loop.
    Core,
    /// Behind the loop.
    Coda,
}

/// The name of a Huginn block's tensor, `.weight` included where it has one.
pub fn huginn_block(part: Part, block: usize, tensor: &str) -> String {
    let part = match part {
        Part::Prelude => "prelude",
        Part::Core => "core_block",
        Part::Coda => "coda",
    };
    format!("transformer.{part}.{block}.{tensor}")
}

/// A linear layer's weights, scaled so that its outputs are as large as its inputs.
fn linear(name: String, outputs: usize, inputs: usize) -> TensorSpec {
    TensorSpec { name, shape: vec![outputs, inputs], fill: Fill { mean: 0.0, std: (inputs as f32).powf(-0.5) } }
}

fn norm(name: String, width: usize) -> TensorSpec {
    TensorSpec { name, shape: vec![width], fill: NORM }
}

fn gate(name: &str, architecture: &Architecture) -> Vec<TensorSpec> {
    // Hazards around 0.3, so that random models leave at every depth.
    let bias = Fill { mean: -0.8, std: 0.01 };
    vec![
        linear(format!("{name}.weight"), 1, architecture.hidden as usize),
        TensorSpec { name: format!("{name}.bias"), shape: vec![1], fill: bias },
    ]
}

fn ouro(a: &Architecture) -> Vec<TensorSpec> {
    let (vocab, hidden, ffn) = (a.vocab as usize, a.hidden as usize, a.ffn as usize);
    let attention = (a.heads * a.head_dim) as usize;
    let unit = Fill { mean: 0.0, std: 1.0 };
    let mut tensors =
        vec![TensorSpec { name: "model.embed_tokens.weight".into(), shape: vec![vocab, hidden], fill: unit }];
    for layer in 0..a.core_layers as usize {
        for projection in ["q_proj", "k_proj", "v_proj"] {
            tensors.push(linear(ouro_layer(layer, &format!("self_attn.{projection}")), attention, hidden));
        }
        tensors.push(linear(ouro_layer(layer, "self_attn.o_proj"), hidden, attention));
        tensors.push(linear(ouro_layer(layer, "mlp.gate_proj"), ffn, hidden));
        tensors.push(linear(ouro_layer(layer, "mlp.up_proj"), ffn, hidden));
        tensors.push(linear(ouro_layer(layer, "mlp.down_proj"), hidden, ffn));
        for name in ["input_layernorm", "post_attention_layernorm"] {
            tensors.push(norm(ouro_layer(layer, name), hidden));
            let name = ouro_layer(layer, &format!("{name}_2"));
            tensors.push(TensorSpec { name, shape: vec![hidden], fill: BRANCH_NORM });
        }
    }
    tensors.push(norm("model.norm.weight".into(), hidden));
    tensors.extend(gate("model.early_exit_gate", a));
    tensors.push(linear("lm_head.weight".into(), vocab, hidden));
    tensors
}

fn huginn(a: &Architecture) -> Vec<TensorSpec> {
    let (vocab, hidden, ffn) = (a.vocab as usize, a.hidden as usize, a.ffn as usize);
    let (heads, head_dim) = (a.heads as usize, a.head_dim as usize);
    let attention = heads * head_dim;
    let mut tensors = vec![linear("transformer.wte.weight".into(), vocab, hidden)];
    for (part, blocks) in [(Part::Prelude, a.prelude_layers), (Part::Core, a.core_layers), (Part::Coda, a.coda_layers)]
    {
        for block in 0..blocks as usize {
            let name = |tensor: &str| huginn_block(part, block, tensor);
            for tensor in ["norm_1.weight", "norm_2.weight", "norm_3.weight", "norm_4.weight"] {
                tensors.push(norm(name(tensor), hidden));
            }
            tensors.push(linear(name("attn.Wqkv.weight"), 3 * attention, hidden));
            let small = Fill { mean: 0.0, std: 0.1 };
            tensors.push(TensorSpec { name: name("attn.qk_bias"), shape: vec![2, 1, heads, head_dim], fill: small });
            tensors.push(linear(name("attn.proj.weight"), hidden, attention));
            tensors.push(linear(name("mlp.fc.weight"), 2 * ffn, hidden));
            tensors.push(linear(name("mlp.proj.weight"), hidden, ffn));
        }
    }
    tensors.push(linear("transformer.adapter.weight".into(), hidden, 2 * hidden));
    tensors.push(norm("transformer.ln_f.weight".into(), hidden));
    tensors
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameters(model: &str) -> usize {
        let architecture = Architecture::builtin(model).unwrap();
        required(&architecture).iter().map(|tensor| tensor.shape.iter().product::<usize>()).sum()
    }

    #[test]
    fn parameters_add_up_to_the_released_totals() {
        assert_eq!(parameters("ouro-1.4b"), 1_434_652_673);
        assert_eq!(parameters("ouro-2.6b"), 2_667_974_657);
        assert_eq!(parameters("huginn-3.5b"), 3_564_976_800);
    }
}
