//! Huginn: layers before, in and behind the loop, an adapter that shows the embedded token to every loop, and exits once the
//! state settles. Source: the released modeling code (Hugging Face revision bb6621b6).

use super::super::config::{Config, ConfigError, ModelConfig};
use super::super::initial_state::InitialState;
use super::super::rope::RopeForm;
use super::{After, Description, ExitSignal, Family, Form, Looping, Norms, raven};

pub(super) const DESCRIPTION: Description = Description {
    name: "huginn",
    form: Form {
        norms: Norms { before: true, after: After::Sum },
        qk_norm: false,
        qk_bias: true,
        rope: RopeForm::Neighbours,
        rope_theta: 5e4,
        looping: Looping::Injects { norm_before_coda: true },
        scales_embedding: true,
        tied_head: true,
        exit: ExitSignal::Distance,
    },
    tensors: raven::tensors,
    // Models that others made recurrent have its name and not all of its norms.
    is: |config, tensors| Ok(raven::is_raven(config)? && (tensors.is_empty() || is_huginn(tensors))),
    read_config,
    write_config: raven::write_config,
    foreign_end_tokens: &[],
};

/// Special tokens that end a sequence whatever the config says: end of text, end of text with another id, end of turn.
pub(super) const END_TOKENS: [u32; 3] = [65_504, 65_505, 65_508];

/// The released model's padded vocabulary, to which these belong.
const RELEASED_VOCAB: u64 = 65_536;

/// Whether the tensors are Huginn's and not those of a model that was made recurrent.
pub(super) fn is_huginn(tensors: &[String]) -> bool {
    raven::has(tensors, ".norm_3.weight")
}

fn read_config(config: &Config, name: &str) -> Result<ModelConfig, ConfigError> {
    if config.flag("qk_bias")? == Some(false) {
        return Err(config.error("qk_bias", "must be true: blocks without it belong to retrofitted models".into()));
    }
    let architecture = raven::architecture(config, name, Family::HUGINN, &["rope_base"])?;
    if architecture.kv_heads() != architecture.heads {
        let heads = architecture.heads;
        let reason = format!("must be n_heads = {heads}: the model's q/k bias has as many keys as queries");
        return Err(config.error("num_key_value_heads", reason));
    }
    let mut end_tokens = config.ids("eos_token_id")?;
    if architecture.vocab == RELEASED_VOCAB {
        end_tokens.extend(END_TOKENS.into_iter().filter(|token| !end_tokens.contains(token)).collect::<Vec<_>>());
    }
    Ok(ModelConfig {
        architecture,
        context_tokens: config.optional_size("block_size")?,
        end_tokens,
        // A distance is never below 0: all loops.
        exit_threshold: 0.0,
        initial_state: InitialState::Noise { seed: 0 },
    })
}
