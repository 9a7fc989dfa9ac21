//! Llama's tensor names and config keys, which Ouro and Nanbeige keep: all layers are in the loop.

use serde_json::{Value, json};

use super::super::config::{Config, ConfigError, write_scaling};
use super::{After, ExitSignal, Family, HEAD, LayerNames, TensorNames};
use crate::architecture::Architecture;
use crate::units::Depth;

const EMBEDDING: &str = "model.embed_tokens.weight";
const FINAL_NORM: &str = "model.norm.weight";
const GATE: &str = "model.early_exit_gate";

/// A norm behind a branch has the name of the one before it, and a 2.
pub(super) fn tensors(a: &Architecture) -> TensorNames {
    let form = a.form();
    let layer = |i| {
        let name = |tensor: &str| format!("model.layers.{i}.{tensor}.weight");
        let before = |norm: &str| form.norms.before.then(|| name(norm));
        let after = |norm: &str| (form.norms.after != After::Nothing).then(|| name(&format!("{norm}_2")));
        let (attention, mlp) = ("input_layernorm", "post_attention_layernorm");
        LayerNames {
            norms: [before(attention), after(attention), before(mlp), after(mlp)],
            qkv: ["q", "k", "v"].map(|p| name(&format!("self_attn.{p}_proj"))).into(),
            qk_bias: None,
            qk_norm: None,
            out: name("self_attn.o_proj"),
            gate_up: ["gate", "up"].map(|p| name(&format!("mlp.{p}_proj"))).into(),
            down: name("mlp.down_proj"),
        }
    };
    TensorNames {
        embedding: EMBEDDING.into(),
        head: if a.tied_head() { EMBEDDING } else { HEAD }.into(),
        final_norm: FINAL_NORM.into(),
        adapter: None,
        gate: (form.exit == ExitSignal::Hazard).then(|| GATE.into()),
        prelude: Vec::new(),
        core: (0..a.core_layers).map(layer).collect(),
        coda: Vec::new(),
    }
}

/// What a config says of the architecture, with as many KV heads as query heads, no epsilon and no theta unless it has them.
///
/// # Errors
/// A size is missing, or a field is of another type.
pub(super) fn architecture(
    config: &Config,
    name: &str,
    family: Family,
    r_max: Depth,
) -> Result<Architecture, ConfigError> {
    let (hidden, heads) = (config.size("hidden_size")?, config.size("num_attention_heads")?);
    Ok(Architecture {
        name: name.into(),
        family,
        vocab: config.size("vocab_size")?,
        hidden,
        ffn: config.size("intermediate_size")?,
        heads,
        kv_heads: config.optional_size("num_key_value_heads")?,
        head_dim: config.optional_size("head_dim")?.map_or_else(|| config.split(hidden, heads), Ok)?,
        prelude_layers: 0,
        core_layers: config.size("num_hidden_layers")?,
        coda_layers: 0,
        r_max,
        r_min: Depth(family.r_min()).min(r_max),
        rope_theta: config.rope_theta("rope_theta")?,
        rope_scaling: config.rope_scaling()?,
        norm_epsilon: config.real("rms_norm_eps")?,
        tied_head: Some(config.flag("tie_word_embeddings")?.unwrap_or(false)),
    })
}

/// A config that is read as this architecture, with `own` keys of its family.
pub(super) fn write_config(a: &Architecture, own: &Value) -> Value {
    let mut config = json!({
        "vocab_size": a.vocab,
        "hidden_size": a.hidden,
        "intermediate_size": a.ffn,
        "num_hidden_layers": a.core_layers,
        "num_attention_heads": a.heads,
        "num_key_value_heads": a.kv_heads(),
        "head_dim": a.head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": a.norm_epsilon.unwrap_or(1e-6),
        "rope_theta": a.rope_theta(),
        "rope_scaling": write_scaling(a.rope_scaling),
        "tie_word_embeddings": a.tied_head(),
        "torch_dtype": "bfloat16",
    });
    super::extend(&mut config, own);
    config
}
