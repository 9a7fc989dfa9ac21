//! Nanbeige4.2: a Llama whose layers run several times; every loop ends with the final norm. It has no exit of its own, so
//! how far a loop moves the state decides. Source: the released config and public ports of its modeling code, which agree.

use serde_json::{Value, json};

use super::super::config::{Config, ConfigError, ModelConfig};
use super::super::initial_state::InitialState;
use super::super::rope::RopeForm;
use super::{After, Description, ExitSignal, Family, Form, Looping, Norms, llama};
use crate::architecture::Architecture;
use crate::units::Depth;

pub(super) const MODEL_TYPE: &str = "nanbeige";

pub(super) const DESCRIPTION: Description = Description {
    name: "nanbeige",
    form: Form {
        norms: Norms { before: true, after: After::Nothing },
        qk_norm: false,
        qk_bias: false,
        rope: RopeForm::Halves,
        rope_theta: 7e7,
        looping: Looping::Carries,
        scales_embedding: false,
        tied_head: false,
        exit: ExitSignal::Distance,
    },
    tensors: llama::tensors,
    is: |config, _| Ok(config.text("model_type")?.as_deref() == Some(MODEL_TYPE)),
    read_config,
    write_config,
    foreign_end_tokens: &[],
};

/// What the released config leaves off, and a model of this name may have.
const OFF: [&str; 10] = [
    "attention_bias",
    "mlp_bias",
    "qk_layernorm",
    "skip_loop_final_norm",
    "enable_double_loop_split",
    "loop_share_kv",
    "enable_hyper_connection",
    "enable_mhc",
    "enable_depth_attention",
    "use_sliding_window",
];

fn read_config(config: &Config, name: &str) -> Result<ModelConfig, ConfigError> {
    config.only("hidden_act", &["silu"])?;
    OFF.iter().try_for_each(|off| config.must_be_off(off))?;
    config.must_be_null("emb_neighbor_num")?;
    let r_max = config.depth("num_loops")?.unwrap_or(Depth(1));
    let read = llama::architecture(config, name, Family::NANBEIGE, r_max)?;
    let architecture = Architecture {
        rope_theta: read.rope_theta.or(Some(DESCRIPTION.form.rope_theta)),
        norm_epsilon: read.norm_epsilon.or(Some(1e-5)),
        ..read
    };
    Ok(ModelConfig {
        architecture,
        context_tokens: config.optional_size("max_position_embeddings")?,
        end_tokens: config.ids("eos_token_id")?,
        exit_threshold: 0.0,
        initial_state: InitialState::Zero,
    })
}

fn write_config(a: &Architecture) -> Value {
    let own = json!({
        "architectures": ["NanbeigeForCausalLM"],
        "model_type": MODEL_TYPE,
        "num_loops": a.r_max.0,
        "skip_loop_final_norm": false,
        "max_position_embeddings": 262_144,
    });
    llama::write_config(a, &own)
}
