//! Huginn: layers before, in and behind the loop, an adapter that shows the embedded token to every loop, and exits once the
//! state settles. Source: the released modeling code (Hugging Face revision bb6621b6).

use serde_json::{Value, json};

use super::super::config::{Config, ConfigError};
use super::super::folder::ModelConfig;
use super::super::initial_state::InitialState;
use super::super::rope::RopeForm;
use super::super::tensor_spec::{Fill, TensorSpec};
use super::{After, Description, ExitSignal, Family, Form, HEAD, LayerNames, Looping, Norms, TensorNames};
use crate::architecture::Architecture;
use crate::units::Depth;

pub(super) const MODEL_TYPE: &str = "huginn_raven";

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
    required,
    tensors,
    // Models that others made recurrent have its name and not all of its norms.
    is: |config, tensors| Ok(is_raven(config)? && (tensors.is_empty() || is_huginn(tensors))),
    read_config,
    write_config,
};

pub(super) const EMBEDDING: &str = "transformer.wte.weight";
pub(super) const ADAPTER: &str = "transformer.adapter.weight";
pub(super) const FINAL_NORM: &str = "transformer.ln_f.weight";

/// Special tokens that end a sequence whatever the config says: end of text, end of text with another id, end of turn.
const END_TOKENS: [u32; 3] = [65_504, 65_505, 65_508];

/// The released model's padded vocabulary, to which these belong.
const RELEASED_VOCAB: u64 = 65_536;

/// Its own config, or that of a model which was made recurrent.
pub(super) fn is_raven(config: &Config) -> Result<bool, ConfigError> {
    Ok(config.text("model_type")?.as_deref() == Some(MODEL_TYPE))
}

fn is_huginn(tensors: &[String]) -> bool {
    tensors.iter().any(|name| name.ends_with(".norm_3.weight"))
}

/// The released file's name of a block's tensor: `part` is `prelude`, `core_block` or `coda`.
pub(super) fn block(part: &str, block: usize, tensor: &str) -> String {
    format!("transformer.{part}.{block}.{tensor}")
}

pub(super) fn parts(a: &Architecture) -> [(&'static str, usize); 3] {
    [("prelude", a.prelude_layers as usize), ("core_block", a.core_layers as usize), ("coda", a.coda_layers as usize)]
}

fn tensors(a: &Architecture) -> TensorNames {
    let [prelude, core, coda] = parts(a).map(|(part, layers)| {
        let layer = |i| {
            let name = |tensor: &str| block(part, i, tensor);
            LayerNames {
                norms: [1, 2, 3, 4].map(|norm| Some(name(&format!("norm_{norm}.weight")))),
                qkv: vec![name("attn.Wqkv.weight")],
                qk_bias: Some(name("attn.qk_bias")),
                qk_norm: None,
                out: name("attn.proj.weight"),
                gate_up: vec![name("mlp.fc.weight")],
                down: name("mlp.proj.weight"),
            }
        };
        (0..layers).map(layer).collect()
    });
    TensorNames {
        embedding: EMBEDDING.into(),
        head: if a.tied_head() { EMBEDDING } else { HEAD }.into(),
        final_norm: FINAL_NORM.into(),
        adapter: Some(ADAPTER.into()),
        gate: None,
        prelude,
        core,
        coda,
    }
}

fn required(a: &Architecture) -> Vec<TensorSpec> {
    let (vocab, hidden, ffn) = (a.vocab as usize, a.hidden as usize, a.ffn as usize);
    let (queries, kv, dim) = (a.query_width() as usize, a.kv_width() as usize, a.head_dim as usize);
    let mut tensors = vec![TensorSpec::linear(EMBEDDING.into(), vocab, hidden)];
    for (part, blocks) in parts(a) {
        for i in 0..blocks {
            let name = |tensor: &str| block(part, i, tensor);
            for tensor in ["norm_1.weight", "norm_2.weight", "norm_3.weight", "norm_4.weight"] {
                tensors.push(TensorSpec::norm(name(tensor), hidden));
            }
            tensors.push(TensorSpec::linear(name("attn.Wqkv.weight"), queries + 2 * kv, hidden));
            let small = Fill { mean: 0.0, std: 0.1 };
            let shape = match kv == queries {
                true => vec![2, 1, a.heads as usize, dim],
                false => vec![queries + kv],
            };
            tensors.push(TensorSpec { name: name("attn.qk_bias"), shape, fill: small });
            tensors.push(TensorSpec::linear(name("attn.proj.weight"), hidden, queries));
            tensors.push(TensorSpec::linear(name("mlp.fc.weight"), 2 * ffn, hidden));
            tensors.push(TensorSpec::linear(name("mlp.proj.weight"), hidden, ffn));
        }
    }
    tensors.push(TensorSpec::linear(ADAPTER.into(), hidden, 2 * hidden));
    tensors.push(TensorSpec::norm(FINAL_NORM.into(), hidden));
    if !a.tied_head() {
        tensors.push(TensorSpec::linear(HEAD.into(), vocab, hidden));
    }
    tensors
}

fn read_config(config: &Config, name: &str) -> Result<ModelConfig, ConfigError> {
    config.only("block_class_name", &["SandwichBlock"])?;
    config.only("mlp_class_name", &["GatedMLP"])?;
    config.only("nonlin_name", &["SiLU"])?;
    config.only("norm_class_name", &["RMSNorm_llama"])?;
    config.only("injection_type", &["linear"])?;
    config.only("state_init", &["like-init"])?;
    config.must_be_off("bias")?;
    if config.flag("qk_bias")? == Some(false) {
        return Err(config.error("qk_bias", "must be true: blocks without it belong to retrofitted models".into()));
    }
    config.must_be_close("test_time_noise", 0.0)?;
    let (hidden, heads) = (config.size("n_embd")?, config.size("n_heads")?);
    config.must_be_close("init_values.embed_scale", (hidden as f64).sqrt())?;
    config.must_be_close("init_values.std", (2.0 / (5.0 * hidden as f64)).sqrt())?;
    let kv_heads = config.optional_size("num_key_value_heads")?;
    if kv_heads.is_some_and(|kv_heads| kv_heads != heads) {
        let reason = format!("must be n_heads = {heads}: the model's q/k bias has as many keys as queries");
        return Err(config.error("num_key_value_heads", reason));
    }
    let vocab = match config.optional_size("padded_vocab_size")? {
        Some(padded) => padded,
        None => config.size("vocab_size")?,
    };
    let r_max = config.depth("mean_recurrence")?.unwrap_or(Depth(32));
    let tied = config.flag("tie_embeddings")?.or(config.flag("tie_word_embeddings")?).unwrap_or(true);
    let architecture = Architecture {
        name: name.into(),
        family: Family::HUGINN,
        vocab,
        hidden,
        ffn: config.size("intermediate_size")?,
        heads,
        kv_heads,
        head_dim: config.optional_size("head_dim")?.map_or_else(|| config.split(hidden, heads), Ok)?,
        prelude_layers: config.size("n_layers_in_prelude")?,
        core_layers: config.size("n_layers_in_recurrent_block")?,
        coda_layers: config.size("n_layers_in_coda")?,
        r_max,
        r_min: Depth(3).min(r_max),
        rope_theta: Some(config.rope_theta("rope_base")?.unwrap_or(5e4)),
        rope_scaling: config.rope_scaling()?,
        norm_epsilon: Some(config.real("norm_eps")?.unwrap_or(1e-6)),
        tied_head: Some(tied),
    };
    let mut end_tokens = config.ids("eos_token_id")?;
    if vocab == RELEASED_VOCAB {
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

pub(super) fn write_config(a: &Architecture) -> Value {
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
        "bias": false,
        "qk_bias": true,
        "norm_eps": a.norm_epsilon.unwrap_or(1e-6),
        "rope_base": a.rope_theta(),
        "tie_embeddings": a.tied_head(),
        "torch_dtype": "bfloat16",
    })
}
