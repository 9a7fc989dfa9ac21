//! Every tensor that a model needs, from what its tensors are for: shapes, and how a random model fills them.

use super::super::tensor_spec::{Fill, TensorSpec};
use super::{After, LayerNames};
use crate::architecture::Architecture;

/// Every tensor that the model needs.
pub fn required(a: &Architecture) -> Vec<TensorSpec> {
    let names = (a.family.tensors)(a);
    let (vocab, hidden) = (a.vocab as usize, a.hidden as usize);
    // A head keeps the size of its input, and an embedding that is scaled becomes one of unit rows.
    let mut specs = vec![match a.tied_head() || a.form().scales_embedding {
        true => TensorSpec::linear(names.embedding.clone(), vocab, hidden),
        false => TensorSpec::embedding(names.embedding.clone(), vocab, hidden),
    }];
    let layers = names.prelude.iter().chain(&names.core).chain(&names.coda);
    layers.for_each(|layer| of_layer(a, layer, &mut specs));
    specs.extend(names.adapter.map(|name| TensorSpec::linear(name, hidden, 2 * hidden)));
    specs.push(TensorSpec::norm(names.final_norm, hidden));
    specs.extend(names.gate.into_iter().flat_map(|gate| TensorSpec::gate(&gate, a)));
    if names.head != names.embedding {
        specs.push(TensorSpec::linear(names.head, vocab, hidden));
    }
    specs
}

fn of_layer(a: &Architecture, names: &LayerNames, specs: &mut Vec<TensorSpec>) {
    let (hidden, ffn, after) = (a.hidden as usize, a.ffn as usize, a.form().norms.after);
    let (queries, kv) = (a.query_width() as usize, a.kv_width() as usize);
    for (name, behind) in names.norms.iter().zip([false, true, false, true]) {
        specs.extend(name.iter().map(|name| match behind && after == After::Branch {
            true => TensorSpec::branch_norm(name.clone(), hidden),
            false => TensorSpec::norm(name.clone(), hidden),
        }));
    }
    let stacked = |names: &[String], outputs: &[usize]| {
        let outputs = if names.len() == 1 { vec![outputs.iter().sum()] } else { outputs.to_vec() };
        let linear = |(name, outputs): (&String, usize)| TensorSpec::linear(name.clone(), outputs, hidden);
        names.iter().zip(outputs).map(linear).collect::<Vec<_>>()
    };
    specs.extend(stacked(&names.qkv, &[queries, kv, kv]));
    specs.extend(stacked(&names.gate_up, &[ffn, ffn]));
    if let Some(name) = &names.qk_bias {
        // As released: queries', then keys', head by head.
        let shape = match kv == queries {
            true => vec![2, 1, a.heads as usize, a.head_dim as usize],
            false => vec![queries + kv],
        };
        specs.push(TensorSpec { name: name.clone(), shape, fill: Fill { mean: 0.0, std: 0.1 } });
    }
    if let Some([of_queries, of_keys]) = &names.qk_norm {
        specs.push(TensorSpec::norm(of_queries.clone(), queries));
        specs.push(TensorSpec::norm(of_keys.clone(), kv));
    }
    // Where no norm follows a branch, its last layer keeps it small.
    let last = if after == After::Nothing { TensorSpec::branch } else { TensorSpec::linear };
    specs.push(last(names.out.clone(), hidden, queries));
    specs.push(last(names.down.clone(), hidden, ffn));
}
