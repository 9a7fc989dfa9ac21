//! A family that nobody released, in the one file that a new family takes: three loops, heads that share keys and values,
//! norms on the branches' outputs alone, and the embedding as its head.

use engine::architecture::Architecture;
use engine::models::family::{After, Description, ExitSignal, Family, Form, LayerNames, Looping, Norms, TensorNames};
use engine::models::rope::RopeForm;
use engine::units::Depth;

static MADE_UP: Description = Description {
    name: "made_up",
    form: Form {
        norms: Norms { before: false, after: After::Branch },
        qk_norm: false,
        qk_bias: false,
        rope: RopeForm::Neighbours,
        rope_theta: 1e4,
        looping: Looping::Carries,
        scales_embedding: false,
        tied_head: true,
        exit: ExitSignal::Distance,
    },
    tensors: |a| TensorNames {
        embedding: "tokens".into(),
        head: "tokens".into(),
        final_norm: "end".into(),
        adapter: None,
        gate: None,
        prelude: Vec::new(),
        core: (0..a.core_layers)
            .map(|i| LayerNames {
                norms: [None, Some(name(i, "behind_attention")), None, Some(name(i, "behind_mlp"))],
                qkv: vec![name(i, "qkv")],
                qk_bias: None,
                qk_norm: None,
                out: name(i, "out"),
                gate_up: vec![name(i, "gate"), name(i, "up")],
                down: name(i, "down"),
            })
            .collect(),
        coda: Vec::new(),
    },
    is: |_, _| Ok(false),
    read_config: |config, _| Err(config.error("model_type", "nobody released such a model".into())),
    write_config: |_| serde_json::Value::Null,
    foreign_end_tokens: &[],
};

fn name(layer: u64, tensor: &str) -> String {
    format!("{layer}.{tensor}")
}

/// A small model of it.
pub(crate) fn made_up() -> Architecture {
    Architecture {
        name: "made-up".into(),
        family: Family(&MADE_UP),
        heads: 6,
        kv_heads: Some(2),
        head_dim: 16,
        r_max: Depth(3),
        ..Architecture::builtin("tiny-nanbeige").unwrap()
    }
}
