//! Llama, TinyLlama and OLMo-2 made recurrent (arXiv 2511.07384): layers of a pretrained model before, in and behind the loop,
//! Huginn's adapter and tensor names. Llama's norms stand before the branches; OLMo-2's on their outputs, and it norms
//! queries and keys. Source: the released configs, and the one public server of these checkpoints
//! (kaist-flexml-lab/loopspec at 3289f1f4).
//!
//! Their configs say `SandwichBlock` like Huginn's, so a folder's tensors tell which it is.

use serde_json::{Value, json};

use super::super::config::{Config, ConfigError, write_scaling};
use super::super::folder::ModelConfig;
use super::super::initial_state::InitialState;
use super::super::rope::RopeForm;
use super::super::tensor_spec::TensorSpec;
use super::{After, Description, ExitSignal, Family, Form, HEAD, LayerNames, Looping, Norms, TensorNames, huginn};
use crate::architecture::Architecture;
use crate::units::Depth;

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
    required,
    tensors,
    is: |config, tensors| Ok(huginn::is_raven(config)? && has(tensors, "norm_2.weight") && !is_huginn(tensors) && !is_olmo(tensors)),
    read_config: |config, name| read_config(config, name, Family::RECURRENT_LLAMA),
    write_config,
};

pub(super) const OLMO: Description = Description {
    name: "recurrent_olmo",
    form: Form { norms: Norms { before: false, after: After::Branch }, qk_norm: true, ..LLAMA_FORM },
    required,
    tensors,
    is: |config, tensors| Ok(huginn::is_raven(config)? && !is_huginn(tensors) && is_olmo(tensors)),
    read_config: |config, name| read_config(config, name, Family::RECURRENT_OLMO),
    write_config,
};

fn has(tensors: &[String], end: &str) -> bool {
    tensors.iter().any(|name| name.starts_with("transformer.core_block.") && name.ends_with(end))
}

fn is_huginn(tensors: &[String]) -> bool {
    has(tensors, "norm_3.weight")
}

fn is_olmo(tensors: &[String]) -> bool {
    has(tensors, "attn.q_norm.weight")
}

fn tensors(a: &Architecture) -> TensorNames {
    let form = a.form();
    let [prelude, core, coda] = huginn::parts(a).map(|(part, layers)| {
        let layer = |i| {
            let name = |tensor: &str| huginn::block(part, i, tensor);
            let [attention, mlp] = [Some(name("norm_1.weight")), Some(name("norm_2.weight"))];
            LayerNames {
                norms: if form.norms.before { [attention, None, mlp, None] } else { [None, attention, None, mlp] },
                qkv: vec![name("attn.Wqkv.weight")],
                qk_bias: None,
                qk_norm: form.qk_norm.then(|| [name("attn.q_norm.weight"), name("attn.k_norm.weight")]),
                out: name("attn.proj.weight"),
                gate_up: vec![name("mlp.fc.weight")],
                down: name("mlp.proj.weight"),
            }
        };
        (0..layers).map(layer).collect()
    });
    TensorNames {
        embedding: huginn::EMBEDDING.into(),
        head: if a.tied_head() { huginn::EMBEDDING } else { HEAD }.into(),
        final_norm: huginn::FINAL_NORM.into(),
        adapter: Some(huginn::ADAPTER.into()),
        gate: None,
        prelude,
        core,
        coda,
    }
}

fn required(a: &Architecture) -> Vec<TensorSpec> {
    let (vocab, hidden, ffn) = (a.vocab as usize, a.hidden as usize, a.ffn as usize);
    let (queries, kv, form) = (a.query_width() as usize, a.kv_width() as usize, a.form());
    let mut tensors = vec![TensorSpec::embedding(huginn::EMBEDDING.into(), vocab, hidden)];
    for (part, blocks) in huginn::parts(a) {
        for i in 0..blocks {
            let name = |tensor: &str| huginn::block(part, i, tensor);
            for norm in ["norm_1.weight", "norm_2.weight"] {
                tensors.push(match form.norms.before {
                    true => TensorSpec::norm(name(norm), hidden),
                    false => TensorSpec::branch_norm(name(norm), hidden),
                });
            }
            tensors.push(TensorSpec::linear(name("attn.Wqkv.weight"), queries + 2 * kv, hidden));
            if form.qk_norm {
                tensors.push(TensorSpec::norm(name("attn.q_norm.weight"), queries));
                tensors.push(TensorSpec::norm(name("attn.k_norm.weight"), kv));
            }
            tensors.push(TensorSpec::branch(name("attn.proj.weight"), hidden, queries));
            tensors.push(TensorSpec::linear(name("mlp.fc.weight"), 2 * ffn, hidden));
            tensors.push(TensorSpec::branch(name("mlp.proj.weight"), hidden, ffn));
        }
    }
    tensors.push(TensorSpec::linear(huginn::ADAPTER.into(), hidden, 2 * hidden));
    tensors.push(TensorSpec::norm(huginn::FINAL_NORM.into(), hidden));
    if !a.tied_head() {
        tensors.push(TensorSpec::linear(HEAD.into(), vocab, hidden));
    }
    tensors
}

fn read_config(config: &Config, name: &str, family: Family) -> Result<ModelConfig, ConfigError> {
    config.only("mlp_class_name", &["GatedMLP"])?;
    config.only("nonlin_name", &["SiLU"])?;
    config.only("injection_type", &["linear"])?;
    config.only("state_init", &["like-init"])?;
    config.must_be_off("bias")?;
    config.must_be_close("test_time_noise", 0.0)?;
    config.must_be_close("init_values.embed_scale", 1.0)?;
    let (hidden, heads) = (config.size("n_embd")?, config.size("n_heads")?);
    config.must_be_close("init_values.std", (2.0 / (5.0 * hidden as f64)).sqrt())?;
    let vocab = match config.optional_size("padded_vocab_size")? {
        Some(padded) => padded,
        None => config.size("vocab_size")?,
    };
    let r_max = config.depth("mean_recurrence")?.unwrap_or(Depth(32));
    let theta = config.rope_theta("rope_theta")?.or(config.real("rope_base")?);
    let architecture = Architecture {
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
        r_min: Depth(3).min(r_max),
        rope_theta: Some(theta.unwrap_or(5e4)),
        rope_scaling: config.rope_scaling()?,
        norm_epsilon: Some(config.real("norm_eps")?.unwrap_or(1e-6)),
        tied_head: Some(config.flag("tie_embeddings")?.or(config.flag("tie_word_embeddings")?).unwrap_or(true)),
    };
    Ok(ModelConfig {
        architecture,
        context_tokens: match config.optional_size("max_position_embeddings")? {
            Some(tokens) => Some(tokens),
            None => config.optional_size("block_size")?,
        },
        // Released configs still name Huginn's, which mean other things in these vocabularies; a server takes the
        // tokenizer's.
        end_tokens: config.ids("eos_token_id")?.into_iter().filter(|id| u64::from(*id) < vocab).collect(),
        exit_threshold: 0.0,
        initial_state: InitialState::Noise { seed: 0 },
    })
}

fn write_config(a: &Architecture) -> Value {
    let mut config = huginn::write_config(a);
    if let Value::Object(fields) = &mut config {
        fields.insert("rope_theta".into(), json!(a.rope_theta()));
        fields.insert("rope_scaling".into(), write_scaling(a.rope_scaling));
        fields.insert("init_values".into(), json!({"embed_scale": 1.0, "std": (2.0 / (5.0 * a.hidden as f64)).sqrt()}));
        fields.insert("qk_bias".into(), json!(false));
    }
    config
}
