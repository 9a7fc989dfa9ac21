//! Ouro and Ouro-Thinking: all layers are in the loop, every loop ends with the final norm, and a learned gate says when a
//! token may leave. Source: the released modeling code (Hugging Face revision 574fa66c).

use serde_json::{Value, json};

use super::super::config::{Config, ConfigError, ModelConfig};
use super::super::initial_state::InitialState;
use super::super::rope::RopeForm;
use super::{After, Description, ExitSignal, Family, Form, Looping, Norms, llama};
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
    tensors: llama::tensors,
    is: |config, _| Ok(config.text("model_type")?.as_deref() == Some(MODEL_TYPE)),
    read_config,
    write_config,
    foreign_end_tokens: &[],
};

/// Keys that are missing have the class's defaults; sizes have none that a model could have meant.
fn read_config(config: &Config, name: &str) -> Result<ModelConfig, ConfigError> {
    config.only("hidden_act", &["silu"])?;
    config.must_be_off("use_sliding_window")?;
    config.must_be_off("attention_bias")?;
    config.must_be_null("early_exit_step")?;
    config.only_in_list("layer_types", "full_attention")?;
    let r_max = config.depth("total_ut_steps")?.unwrap_or(Depth(4));
    let read = llama::architecture(config, name, Family::OURO, r_max)?;
    // The class's default is 32, and as many as query heads where the file says null.
    let kv_heads = if config.is_null("num_key_value_heads") { None } else { read.kv_heads.or(Some(32)) };
    let architecture = Architecture {
        kv_heads,
        rope_theta: read.rope_theta.or(Some(1e4)),
        norm_epsilon: read.norm_epsilon.or(Some(1e-6)),
        ..read
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
    let own = json!({
        "architectures": ["OuroForCausalLM"],
        "model_type": MODEL_TYPE,
        "total_ut_steps": a.r_max.0,
        "early_exit_threshold": 1.0,
        "max_position_embeddings": 65_536,
        "eos_token_id": 0,
    });
    llama::write_config(a, &own)
}
