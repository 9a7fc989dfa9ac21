//! The families of looped models: what distinguishes their arithmetic, what their tensors are called, and what their
//! `config.json` means. One file a family; everything else asks here.

mod huginn;
mod ouro;

use super::config::{Config, ConfigError};
use super::folder::ModelConfig;
use super::rope::RopeForm;
use super::tensor_spec::TensorSpec;
use crate::architecture::{Architecture, Family};

/// What distinguishes a family's arithmetic.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Form {
    /// Where a block's second and fourth norm stand.
    pub norms: Norms,
    /// How heads are turned.
    pub rope: RopeForm,
    /// The released models' base of RoPE's frequencies.
    pub rope_theta: f64,
    /// Queries and keys get a bias before they are turned.
    pub qk_bias: bool,
    /// A loop begins by joining the state with the embedded token, and starts from a state of its own (see
    /// [`super::initial_state`]); the final norm stands before and behind the layers after the loop. Otherwise the
    /// embedding is the first state, and the final norm ends every loop.
    pub injects: bool,
    /// Embeddings are multiplied by the root of the width.
    pub scales_embedding: bool,
    /// The released models' LM head is the embedding.
    pub tied_head: bool,
    /// What says that a token may leave.
    pub exit: ExitSignal,
}

/// Where a block's second and fourth norm stand; the first and third are before each branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Norms {
    /// On each branch's output, within the residual sum.
    Branch,
    /// On the residual sum.
    Sum,
}

/// What a model's own exits are decided by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitSignal {
    /// A trained gate's hazard.
    Hazard,
    /// How far a loop moved the state.
    Distance,
}

/// A model's tensors by what they are for. Lists are stacked, one below the other.
#[derive(Clone, Debug)]
pub struct TensorNames {
    /// `[vocab, hidden]`.
    pub embedding: String,
    /// `[vocab, hidden]`; the embedding where the head is tied.
    pub head: String,
    /// `[hidden]`.
    pub final_norm: String,
    /// `[hidden, 2 hidden]`: joins state and embedded token.
    pub adapter: Option<String>,
    /// The released exit gate: `{}.weight` `[1, hidden]` and `{}.bias` `[1]`.
    pub gate: Option<String>,
    /// Layers before the loop.
    pub prelude: Vec<LayerNames>,
    /// Layers in the loop.
    pub core: Vec<LayerNames>,
    /// Layers behind the loop.
    pub coda: Vec<LayerNames>,
}

/// A block's tensors by what they are for.
#[derive(Clone, Debug)]
pub struct LayerNames {
    /// Before and after attention, before and after the MLP; `[hidden]` each.
    pub norms: [String; 4],
    /// Queries, keys, values: `[(heads + 2 kv_heads) * head_dim, hidden]` together.
    pub qkv: Vec<String>,
    /// Added to queries, then keys.
    pub qk_bias: Option<String>,
    /// `[hidden, heads * head_dim]`.
    pub out: String,
    /// The MLP's gate, then its up projection: `[2 ffn, hidden]` together.
    pub gate_up: Vec<String>,
    /// `[hidden, ffn]`.
    pub down: String,
}

/// The separately trained lookahead gate, which any model with a gate may have.
pub const LOOKAHEAD_GATE: &str = "lookahead_gate";

/// What distinguishes a family's arithmetic.
pub fn form(family: Family) -> Form {
    match family {
        Family::Ouro => ouro::FORM,
        Family::Huginn => huginn::FORM,
    }
}

/// Every tensor that the model needs.
pub fn required(architecture: &Architecture) -> Vec<TensorSpec> {
    match architecture.family {
        Family::Ouro => ouro::required(architecture),
        Family::Huginn => huginn::required(architecture),
    }
}

/// Tensors that a file may hold and that are then used.
pub fn optional(architecture: &Architecture) -> Vec<TensorSpec> {
    match architecture.form().exit {
        ExitSignal::Hazard => TensorSpec::gate(LOOKAHEAD_GATE, architecture),
        ExitSignal::Distance => Vec::new(),
    }
}

/// The model's tensors by what they are for.
pub fn names(architecture: &Architecture) -> TensorNames {
    match architecture.family {
        Family::Ouro => ouro::names(architecture),
        Family::Huginn => huginn::names(architecture),
    }
}

/// Tensors that a file may hold and that are not read: tables that are computed, and the head of a model whose head is the
/// embedding.
pub fn is_ignored(architecture: &Architecture, name: &str) -> bool {
    let tables = ["freqs_cis", "rotary_emb.inv_freq"];
    let table = tables.iter().any(|table| name == *table || name.ends_with(&format!(".{table}")));
    table || (architecture.tied_head() && name == HEAD)
}

/// The head's released name, in every family.
pub const HEAD: &str = "lm_head.weight";

/// What public trainers call tensors, and their released names.
pub const ALIASES: [(&str, &str); 1] = [("lm_head.original.weight", HEAD)];

/// What a released `config.json` says; `name` is the model's in tables.
///
/// # Errors
/// A field that is missing, is no number, or asks for what cannot be done.
pub fn read_config(config: &Config, name: &str) -> Result<ModelConfig, ConfigError> {
    match config.text("model_type")?.as_deref() {
        Some(ouro::MODEL_TYPE) => ouro::read_config(config, name),
        Some(huginn::MODEL_TYPE) => huginn::read_config(config, name),
        found => {
            let known = [ouro::MODEL_TYPE, huginn::MODEL_TYPE].join(" or ");
            let found = found.map_or("there is none".into(), |found| format!("got `{found}`"));
            Err(config.error("model_type", format!("must be {known}, {found}: no other looped family is known")))
        }
    }
}

/// A `config.json` that [`read_config`] reads as this architecture.
pub fn write_config(architecture: &Architecture) -> serde_json::Value {
    match architecture.family {
        Family::Ouro => ouro::write_config(architecture),
        Family::Huginn => huginn::write_config(architecture),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_add_up_to_the_released_totals() {
        let check = |model: &str, total: usize| {
            let architecture = Architecture::builtin(model).expect("a built-in model");
            let parameters = |spec: &TensorSpec| spec.shape.iter().product::<usize>();
            assert_eq!(required(&architecture).iter().map(parameters).sum::<usize>(), total, "{model}");
        };
        check("ouro-1.4b", 1_434_652_673);
        check("ouro-2.6b", 2_667_974_657);
        check("huginn-3.5b", 3_564_976_800);
    }

    #[test]
    fn every_tensor_has_one_use_and_every_use_a_tensor() {
        for model in Architecture::BUILTIN {
            for (tied_head, kv_heads) in [(false, None), (true, Some(1))] {
                let builtin = Architecture::builtin(model).expect("a built-in model");
                let architecture = Architecture { tied_head: Some(tied_head), kv_heads, ..builtin };
                let names = names(&architecture);
                let mut used = vec![names.embedding, names.final_norm];
                used.extend((!tied_head).then_some(names.head));
                used.extend(names.adapter);
                used.extend(names.gate.into_iter().flat_map(|gate| ["weight", "bias"].map(|x| format!("{gate}.{x}"))));
                for layer in names.prelude.into_iter().chain(names.core).chain(names.coda) {
                    used.extend(layer.norms.into_iter().chain(layer.qkv).chain(layer.qk_bias));
                    used.extend(layer.gate_up.into_iter().chain([layer.out, layer.down]));
                }
                let mut required: Vec<String> = required(&architecture).into_iter().map(|spec| spec.name).collect();
                (used.sort(), required.sort());
                assert_eq!(used, required, "{model}");
            }
        }
    }
}
