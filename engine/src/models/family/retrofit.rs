//! Llama, TinyLlama and OLMo-2 made recurrent (arXiv 2511.07384): layers of a pretrained model before, in and behind the loop,
//! Huginn's adapter and tensor names. Llama's norms stand before the branches; OLMo-2's on their outputs, and it norms
//! queries and keys. Source: the one public server of these checkpoints (kaist-flexml-lab/loopspec at 3289f1f4).
//!
//! Their configs say `SandwichBlock` like Huginn's, so a folder's tensors tell which it is.

use super::super::config::{Config, ConfigError, ModelConfig};
use super::super::initial_state::InitialState;
use super::super::rope::RopeForm;
use super::{After, Description, ExitSignal, Family, Form, Looping, Norms, huginn, raven};

const LLAMA_FORM: Form = Form {
    norms: Norms { before: true, after: After::Nothing },
    qk_norm: false,
    qk_bias: false,
    rope: RopeForm::Halves,
    rope_theta: 5e5,
    looping: Looping::Injects { norm_before_coda: false },
    scales_embedding: false,
    tied_head: false,
    exit: ExitSignal::Distance,
};

pub(super) const LLAMA: Description = Description {
    name: "recurrent_llama",
    form: LLAMA_FORM,
    tensors: raven::tensors,
    is: |config, tensors| Ok(is_retrofit(config, tensors)? && !is_olmo(tensors)),
    read_config: |config, name| read_config(config, name, Family::RECURRENT_LLAMA),
    write_config: raven::write_config,
    foreign_end_tokens: &huginn::END_TOKENS,
};

pub(super) const OLMO: Description = Description {
    name: "recurrent_olmo",
    form: Form { norms: Norms { before: false, after: After::Branch }, qk_norm: true, ..LLAMA_FORM },
    is: |config, tensors| Ok(is_retrofit(config, tensors)? && is_olmo(tensors)),
    read_config: |config, name| read_config(config, name, Family::RECURRENT_OLMO),
    ..LLAMA
};

fn is_retrofit(config: &Config, tensors: &[String]) -> Result<bool, ConfigError> {
    Ok(raven::is_raven(config)? && raven::has(tensors, ".norm_2.weight") && !huginn::is_huginn(tensors))
}

fn is_olmo(tensors: &[String]) -> bool {
    raven::has(tensors, ".attn.q_norm.weight")
}

fn read_config(config: &Config, name: &str, family: Family) -> Result<ModelConfig, ConfigError> {
    let context = config.optional_size("max_position_embeddings")?;
    Ok(ModelConfig {
        architecture: raven::architecture(config, name, family, &["rope_theta", "rope_base"])?,
        context_tokens: context.or(config.optional_size("block_size")?),
        end_tokens: config.ids("eos_token_id")?,
        exit_threshold: 0.0,
        initial_state: InitialState::Noise { seed: 0 },
    })
}
