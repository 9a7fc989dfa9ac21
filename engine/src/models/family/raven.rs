//! Raven's tensor names and config keys, which Huginn and the models that were made recurrent after it keep: layers before,
//! in and behind the loop, and an adapter.

use serde_json::{Value, json};

use super::super::config::{Config, ConfigError, write_scaling};
use super::{After, Family, HEAD, LayerNames, TensorNames};
use crate::architecture::Architecture;
use crate::units::Depth;

pub(super) const MODEL_TYPE: &str = "huginn_raven";

const EMBEDDING: &str = "transformer.wte.weight";

/// Whether a config is Huginn's, or that of a model which was made recurrent.
pub(super) fn is_raven(config: &Config) -> Result<bool, ConfigError> {
    Ok(config.text("model_type")?.as_deref() == Some(MODEL_TYPE))
}

/// Whether the core's blocks have a tensor of such a name.
pub(super) fn has(tensors: &[String], end: &str) -> bool {
    tensors.iter().any(|name| name.starts_with("transformer.core_block.") && name.ends_with(end))
}

/// A block's norms are numbered in the order in which they are applied.
pub(super) fn tensors(a: &Architecture) -> TensorNames {
    let form = a.form();
    let layer = |part: &str, i: u64| {
        let name = |tensor: &str| format!("transformer.{part}.{i}.{tensor}");
        let (before, after) = (form.norms.before, form.norms.after != After::Nothing);
        let mut number = 0;
        let norms = [before, after, before, after].map(|has| {
            has.then(|| {
                number += 1;
                name(&format!("norm_{number}.weight"))
            })
        });
        LayerNames {
            norms,
            qkv: vec![name("attn.Wqkv.weight")],
            qk_bias: form.qk_bias.then(|| name("attn.qk_bias")),
            qk_norm: form.qk_norm.then(|| [name("attn.q_norm.weight"), name("attn.k_norm.weight")]),
            out: name("attn.proj.weight"),
            gate_up: vec![name("mlp.fc.weight")],
            down: name("mlp.proj.weight"),
        }
    };
    let layers = |part, layers: u64| (0..layers).map(|i| layer(part, i)).collect();
    TensorNames {
        embedding: EMBEDDING.into(),
        head: if a.tied_head() { EMBEDDING } else { HEAD }.into(),
        final_norm: "transformer.ln_f.weight".into(),
        adapter: Some("transformer.adapter.weight".into()),
        gate: None,
        prelude: layers("prelude", a.prelude_layers),
        core: layers("core_block", a.core_layers),
        coda: layers("coda", a.coda_layers),
    }
}

/// What a config says of the architecture; the base of RoPE's frequencies is under the first of `theta` that it has.
///
/// # Errors
/// A size is missing, a field is of another type or asks for what cannot be done.
pub(super) fn architecture(
    config: &Config,
    name: &str,
    family: Family,
    theta: &[&str],
) -> Result<Architecture, ConfigError> {
    config.only("block_class_name", &["SandwichBlock"])?;
    config.only("mlp_class_name", &["GatedMLP"])?;
    config.only("nonlin_name", &["SiLU"])?;
    config.only("norm_class_name", &["RMSNorm_llama"])?;
    config.only("injection_type", &["linear"])?;
    config.only("state_init", &["like-init"])?;
    config.must_be_off("bias")?;
    config.must_be_close("test_time_noise", 0.0)?;
    let (hidden, heads) = (config.size("n_embd")?, config.size("n_heads")?);
    let scale = if family.form.scales_embedding { (hidden as f64).sqrt() } else { 1.0 };
    config.must_be_close("init_values.embed_scale", scale)?;
    config.must_be_close("init_values.std", std(hidden))?;
    let vocab = match config.optional_size("padded_vocab_size")? {
        Some(padded) => padded,
        None => config.size("vocab_size")?,
    };
    let mut rope_theta = None;
    for field in theta {
        rope_theta = rope_theta.or(config.rope_theta(field)?);
    }
    let r_max = config.depth("mean_recurrence")?.unwrap_or(Depth(32));
    Ok(Architecture {
        name: name.into(),
        family,
        vocab,
        hidden,
        ffn: config.size("intermediate_size")?,
        heads,
        kv_heads: config.optional_size("num_key_value_heads")?,
        head_dim: config.optional_size("head_dim")?.map_or_else(|| config.split(hidden, heads), Ok)?,
        prelude_layers: config.size("n_layers_in_prelude")?,
        core_layers: config.size("n_layers_in_recurrent_block")?,
        coda_layers: config.size("n_layers_in_coda")?,
        r_max,
        r_min: Depth(family.r_min()).min(r_max),
        rope_theta: Some(rope_theta.unwrap_or(5e4)),
        rope_scaling: config.rope_scaling()?,
        norm_epsilon: Some(config.real("norm_eps")?.unwrap_or(1e-6)),
        tied_head: Some(config.flag("tie_embeddings")?.or(config.flag("tie_word_embeddings")?).unwrap_or(true)),
    })
}

/// The standard deviation with which its weights begin.
fn std(hidden: u64) -> f64 {
    (2.0 / (5.0 * hidden as f64)).sqrt()
}

/// A config that is read as this architecture.
pub(super) fn write_config(a: &Architecture) -> Value {
    let form = a.form();
    let embed_scale = if form.scales_embedding { (a.hidden as f64).sqrt() } else { 1.0 };
    json!({
        "architectures": ["RavenForCausalLM"],
        "model_type": MODEL_TYPE,
        "vocab_size": a.vocab,
        "padded_vocab_size": a.vocab,
        "n_embd": a.hidden,
        "intermediate_size": a.ffn,
        "n_heads": a.heads,
        "num_key_value_heads": a.kv_heads(),
        "head_dim": a.head_dim,
        "n_layers_in_prelude": a.prelude_layers,
        "n_layers_in_recurrent_block": a.core_layers,
        "n_layers_in_coda": a.coda_layers,
        "n_layers": a.prelude_layers + a.core_layers + a.coda_layers,
        "mean_recurrence": a.r_max.0,
        "block_size": 4096,
        "block_class_name": "SandwichBlock",
        "mlp_class_name": "GatedMLP",
        "norm_class_name": "RMSNorm_llama",
        "nonlin_name": "SiLU",
        "injection_type": "linear",
        "state_init": "like-init",
        "init_values": { "embed_scale": embed_scale, "std": std(a.hidden) },
        "bias": false,
        "qk_bias": form.qk_bias,
        "norm_eps": a.norm_epsilon.unwrap_or(1e-6),
        "rope_base": a.rope_theta(),
        "rope_scaling": write_scaling(a.rope_scaling),
        "tie_embeddings": a.tied_head(),
        "torch_dtype": "bfloat16",
    })
}
