//! Ouro and Ouro-Thinking: all layers are in the loop, every loop ends with the final norm, and a learned gate says when a
//! token may leave. Source: the released modeling code (Hugging Face revision 574fa66c).

use serde_json::{Value, json};

use super::super::config::{Config, ConfigError, write_scaling};
use super::super::folder::ModelConfig;
use super::super::initial_state::InitialState;
use super::super::rope::RopeForm;
use super::super::tensor_spec::TensorSpec;
use super::{After, Description, ExitSignal, Family, Form, HEAD, LayerNames, Looping, Norms, TensorNames};
use crate::architecture::Architecture;
use crate::units::Depth;

pub(super) const MODEL_TYPE: &str = "ouro";

pub(super) const DESCRIPTION: Description = Description {
    name: "ouro",
    form: Form {
        norms: Norms { before: true, after: After::Branch },
        qk_norm: false,
        qk_bias: false,
        rope: RopeForm::Halves,
        rope_theta: 1e6,
        looping: Looping::Carries,
        scales_embedding: false,
        tied_head: false,
        exit: ExitSignal::Hazard,
    },
    required,
    tensors,
    is: |config, _| Ok(config.text("model_type")?.as_deref() == Some(MODEL_TYPE)),
    read_config,
    write_config,
};

const EMBEDDING: &str = "model.embed_tokens.weight";
const FINAL_NORM: &str = "model.norm.weight";
const GATE: &str = "model.early_exit_gate";

fn layer(layer: usize, tensor: &str) -> String {
    format!("model.layers.{layer}.{tensor}.weight")
}

fn tensors(a: &Architecture) -> TensorNames {
    let core = (0..a.core_layers as usize).map(|i| {
        let name = |tensor: &str| layer(i, tensor);
        LayerNames {
            norms: [
                Some(name("input_layernorm")),
                Some(name("input_layernorm_2")),
                Some(name("post_attention_layernorm")),
                Some(name("post_attention_layernorm_2")),
            ],
            qkv: ["q", "k", "v"].map(|p| name(&format!("self_attn.{p}_proj"))).into(),
            qk_bias: None,
            qk_norm: None,
            out: name("self_attn.o_proj"),
            gate_up: ["gate", "up"].map(|p| name(&format!("mlp.{p}_proj"))).into(),
            down: name("mlp.down_proj"),
        }
    });
    TensorNames {
        embedding: EMBEDDING.into(),
        head: if a.tied_head() { EMBEDDING } else { HEAD }.into(),
        final_norm: FINAL_NORM.into(),
        adapter: None,
        gate: Some(GATE.into()),
        prelude: Vec::new(),
        core: core.collect(),
        coda: Vec::new(),
    }
}

fn required(a: &Architecture) -> Vec<TensorSpec> {
    let (vocab, hidden, ffn) = (a.vocab as usize, a.hidden as usize, a.ffn as usize);
    let (queries, kv) = (a.query_width() as usize, a.kv_width() as usize);
    let mut tensors = vec![match a.tied_head() {
        true => TensorSpec::linear(EMBEDDING.into(), vocab, hidden),
        false => TensorSpec::embedding(EMBEDDING.into(), vocab, hidden),
    }];
    for i in 0..a.core_layers as usize {
        for (projection, outputs) in [("q_proj", queries), ("k_proj", kv), ("v_proj", kv)] {
            tensors.push(TensorSpec::linear(layer(i, &format!("self_attn.{projection}")), outputs, hidden));
        }
        tensors.push(TensorSpec::linear(layer(i, "self_attn.o_proj"), hidden, queries));
        tensors.push(TensorSpec::linear(layer(i, "mlp.gate_proj"), ffn, hidden));
        tensors.push(TensorSpec::linear(layer(i, "mlp.up_proj"), ffn, hidden));
        tensors.push(TensorSpec::linear(layer(i, "mlp.down_proj"), hidden, ffn));
        for name in ["input_layernorm", "post_attention_layernorm"] {
            tensors.push(TensorSpec::norm(layer(i, name), hidden));
            tensors.push(TensorSpec::branch_norm(layer(i, &format!("{name}_2")), hidden));
        }
    }
    tensors.push(TensorSpec::norm(FINAL_NORM.into(), hidden));
    tensors.extend(TensorSpec::gate(GATE, a));
    if !a.tied_head() {
        tensors.push(TensorSpec::linear(HEAD.into(), vocab, hidden));
    }
    tensors
}

/// Keys that are missing have the class's defaults; sizes have none that a model could have meant.
fn read_config(config: &Config, name: &str) -> Result<ModelConfig, ConfigError> {
    config.only("hidden_act", &["silu"])?;
    config.must_be_off("use_sliding_window")?;
    config.must_be_off("attention_bias")?;
    config.must_be_null("early_exit_step")?;
    config.only_in_list("layer_types", "full_attention")?;
    let (hidden, heads) = (config.size("hidden_size")?, config.size("num_attention_heads")?);
    let r_max = config.depth("total_ut_steps")?.unwrap_or(Depth(4));
    let architecture = Architecture {
        name: name.into(),
        family: Family::OURO,
        vocab: config.size("vocab_size")?,
        hidden,
        ffn: config.size("intermediate_size")?,
        heads,
        // The class's default is 32, and as many as query heads where the file says null.
        kv_heads: match config.is_null("num_key_value_heads") {
            true => None,
            false => Some(config.optional_size("num_key_value_heads")?.unwrap_or(32)),
        },
        head_dim: config.optional_size("head_dim")?.map_or_else(|| config.split(hidden, heads), Ok)?,
        prelude_layers: 0,
        core_layers: config.size("num_hidden_layers")?,
        coda_layers: 0,
        r_max,
        r_min: Depth(2).min(r_max),
        rope_theta: Some(config.rope_theta("rope_theta")?.unwrap_or(1e4)),
        rope_scaling: config.rope_scaling()?,
        norm_epsilon: Some(config.real("rms_norm_eps")?.unwrap_or(1e-6)),
        tied_head: Some(config.flag("tie_word_embeddings")?.unwrap_or(false)),
    };
    Ok(ModelConfig {
        architecture,
        context_tokens: config.optional_size("max_position_embeddings")?,
        end_tokens: config.ids("eos_token_id")?,
        exit_threshold: config.real("early_exit_threshold")?.unwrap_or(1.0) as f32,
        initial_state: InitialState::Zero,
    })
}

fn write_config(a: &Architecture) -> Value {
    json!({
        "architectures": ["OuroForCausalLM"],
        "model_type": MODEL_TYPE,
        "vocab_size": a.vocab,
        "hidden_size": a.hidden,
        "intermediate_size": a.ffn,
        "num_hidden_layers": a.core_layers,
        "num_attention_heads": a.heads,
        "num_key_value_heads": a.kv_heads(),
        "head_dim": a.head_dim,
        "total_ut_steps": a.r_max.0,
        "early_exit_threshold": 1.0,
        "hidden_act": "silu",
        "max_position_embeddings": 65_536,
        "rms_norm_eps": a.norm_epsilon.unwrap_or(1e-6),
        "rope_theta": a.rope_theta(),
        "rope_scaling": write_scaling(a.rope_scaling),
        "tie_word_embeddings": a.tied_head(),
        "torch_dtype": "bfloat16",
        "eos_token_id": 0,
    })
}
