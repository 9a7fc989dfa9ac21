//! The families of looped models: what distinguishes their arithmetic, what their tensors are called, and what their
//! `config.json` means. One file a family; everything else asks its description.

mod huginn;
mod llama;
mod nanbeige;
mod ouro;
mod raven;
mod required;
mod retrofit;

use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::config::{Config, ConfigError, ModelConfig};
use super::rope::RopeForm;
use super::tensor_spec::TensorSpec;
use crate::architecture::Architecture;

/// A family, by its description. Two are the same if their names are.
#[derive(Clone, Copy)]
pub struct Family(pub &'static Description);

/// Everything that is said of a family; whoever adds one writes this.
pub struct Description {
    /// In scenarios.
    pub name: &'static str,
    /// What distinguishes its arithmetic.
    pub form: Form,
    /// Its tensors by what they are for.
    pub tensors: fn(&Architecture) -> TensorNames,
    /// Whether a folder is one of this family, by its config and the names of its tensors.
    pub is: fn(&Config, &[String]) -> Result<bool, ConfigError>,
    /// What its `config.json` says; the name is the model's in tables.
    pub read_config: fn(&Config, &str) -> Result<ModelConfig, ConfigError>,
    /// A `config.json` that is read as this architecture.
    pub write_config: fn(&Architecture) -> serde_json::Value,
    /// End tokens that its released configs name and that belong to another vocabulary.
    pub foreign_end_tokens: &'static [u32],
}

impl Family {
    /// Ouro and Ouro-Thinking.
    pub const OURO: Self = Self(&ouro::DESCRIPTION);
    /// Huginn-0125.
    pub const HUGINN: Self = Self(&huginn::DESCRIPTION);
    /// Nanbeige4.2.
    pub const NANBEIGE: Self = Self(&nanbeige::DESCRIPTION);
    /// Llama and TinyLlama, made recurrent.
    pub const RECURRENT_LLAMA: Self = Self(&retrofit::LLAMA);
    /// OLMo-2, made recurrent.
    pub const RECURRENT_OLMO: Self = Self(&retrofit::OLMO);

    /// Every family that scenarios and folders can name.
    pub const ALL: [Self; 5] = [Self::OURO, Self::HUGINN, Self::NANBEIGE, Self::RECURRENT_LLAMA, Self::RECURRENT_OLMO];
}

impl Family {
    /// The shallowest exit under a lookahead of one loop: a distance needs two states, a hazard one.
    fn r_min(self) -> u8 {
        match self.form.exit {
            ExitSignal::Hazard => 2,
            ExitSignal::Distance => 3,
        }
    }
}

impl Deref for Family {
    type Target = Description;

    fn deref(&self) -> &Description {
        self.0
    }
}

impl fmt::Debug for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl PartialEq for Family {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Family {}

impl Hash for Family {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl Serialize for Family {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name)
    }
}

impl<'de> Deserialize<'de> for Family {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        let known = || Self::ALL.map(|family| family.name).join(", ");
        let family = Self::ALL.into_iter().find(|family| family.name == name);
        family.ok_or_else(|| de::Error::custom(format!("there is no family `{name}`, only {}", known())))
    }
}

pub use required::required;

/// What distinguishes a family's arithmetic.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Form {
    /// Where norms stand in a block.
    pub norms: Norms,
    /// Queries and keys of all heads together are normed before they are turned.
    pub qk_norm: bool,
    /// Queries and keys get a bias before they are turned.
    pub qk_bias: bool,
    /// How heads are turned.
    pub rope: RopeForm,
    /// The released models' base of RoPE's frequencies.
    pub rope_theta: f64,
    /// What a loop begins and ends with.
    pub looping: Looping,
    /// Embeddings, and the noise from which a loop may start, are multiplied by the root of the width.
    pub scales_embedding: bool,
    /// The released models' LM head is the embedding.
    pub tied_head: bool,
    /// What says that a token may leave.
    pub exit: ExitSignal,
}

/// Where norms stand in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Norms {
    /// Before each branch.
    pub before: bool,
    /// Behind each branch.
    pub after: After,
}

/// What is normed behind a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// Nothing.
    Nothing,
    /// The branch's output, within the residual sum.
    Branch,
    /// The residual sum.
    Sum,
}

/// What a loop begins and ends with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Looping {
    /// The embedding is the first state, and the final norm ends every loop. No layers outside the loop.
    Carries,
    /// A loop begins by joining the state with what the prelude made of the token, and starts from a state of its own (see
    /// [`super::initial_state`]). The final norm stands behind the coda, and before it too if `norm_before_coda`.
    Injects {
        /// See there.
        norm_before_coda: bool,
    },
}

impl Form {
    /// Every loop sees the embedded token.
    pub fn injects(&self) -> bool {
        self.looping != Looping::Carries
    }
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
    /// Before and after attention, before and after the MLP; `[hidden]` each, where the form has them.
    pub norms: [Option<String>; 4],
    /// Queries, keys, values: `[(heads + 2 kv_heads) * head_dim, hidden]` together.
    pub qkv: Vec<String>,
    /// Added to queries, then keys.
    pub qk_bias: Option<String>,
    /// Norms of all queries `[heads * head_dim]` and all keys `[kv_heads * head_dim]`.
    pub qk_norm: Option<[String; 2]>,
    /// `[hidden, heads * head_dim]`.
    pub out: String,
    /// The MLP's gate, then its up projection: `[2 ffn, hidden]` together.
    pub gate_up: Vec<String>,
    /// `[hidden, ffn]`.
    pub down: String,
}

/// The separately trained lookahead gate, which any model with a gate may have.
pub const LOOKAHEAD_GATE: &str = "lookahead_gate";

/// The head's released name, in every family.
pub const HEAD: &str = "lm_head.weight";

/// What public trainers call tensors, and their released names.
pub const ALIASES: [(&str, &str); 1] = [("lm_head.original.weight", HEAD)];

/// Puts an object's fields behind another's.
fn extend(object: &mut serde_json::Value, own: &serde_json::Value) {
    if let (Some(object), Some(own)) = (object.as_object_mut(), own.as_object()) {
        object.extend(own.clone());
    }
}

/// Tensors that a file may hold and that are then used.
pub fn optional(architecture: &Architecture) -> Vec<TensorSpec> {
    match architecture.form().exit {
        ExitSignal::Hazard => TensorSpec::gate(LOOKAHEAD_GATE, architecture),
        ExitSignal::Distance => Vec::new(),
    }
}

/// Tensors that a file may hold and that are not read: tables that are computed, and the head of a model whose head is the
/// embedding.
pub fn is_ignored(architecture: &Architecture, name: &str) -> bool {
    let tables = ["freqs_cis", "rotary_emb.inv_freq"];
    let table = tables.iter().any(|table| name == *table || name.ends_with(&format!(".{table}")));
    table || (architecture.tied_head() && name == HEAD)
}

/// The family of a folder, by its config and the names of its tensors (none if its weights are not there yet).
///
/// # Errors
/// It is of none that is known.
pub fn of(config: &Config, tensors: &[String]) -> Result<Family, ConfigError> {
    for family in Family::ALL {
        if (family.is)(config, tensors)? {
            return Ok(family);
        }
    }
    let known = [ouro::MODEL_TYPE, raven::MODEL_TYPE, nanbeige::MODEL_TYPE].join(", ");
    let found = config.text("model_type")?.map_or("there is none".into(), |found| format!("got `{found}`"));
    Err(config.error("model_type", format!("must be one of {known}; {found}: no other looped family is known")))
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
        check("recurrent-llama-3.2", 1_385_228_288);
    }

    #[test]
    fn every_tensor_has_one_use_and_every_use_a_tensor() {
        for model in Architecture::BUILTIN {
            for (tied_head, kv_heads) in [(false, None), (true, Some(1))] {
                let builtin = Architecture::builtin(model).expect("a built-in model");
                let architecture = Architecture { tied_head: Some(tied_head), kv_heads, ..builtin };
                let names = (architecture.family.tensors)(&architecture);
                let mut used = vec![names.embedding, names.final_norm];
                used.extend((!tied_head).then_some(names.head));
                used.extend(names.adapter);
                used.extend(names.gate.into_iter().flat_map(|gate| ["weight", "bias"].map(|x| format!("{gate}.{x}"))));
                for layer in names.prelude.into_iter().chain(names.core).chain(names.coda) {
                    used.extend(layer.norms.into_iter().flatten().chain(layer.qkv).chain(layer.qk_bias));
                    used.extend(layer.qk_norm.into_iter().flatten());
                    used.extend(layer.gate_up.into_iter().chain([layer.out, layer.down]));
                }
                let mut specs: Vec<String> = required(&architecture).into_iter().map(|spec| spec.name).collect();
                used.sort();
                specs.sort();
                assert_eq!(used, specs, "{model}");
            }
        }
    }

    #[test]
    fn names_are_unique_and_read_back() {
        for family in Family::ALL {
            let written = serde_json::to_string(&family).expect("a name");
            assert_eq!(serde_json::from_str::<Family>(&written).expect("known"), family);
            assert_eq!(Family::ALL.iter().filter(|other| **other == family).count(), 1);
        }
        assert!(serde_json::from_str::<Family>("\"llama\"").is_err());
    }
}
