//! Weights go through safetensors files by their released names, and whatever is wrong with them is named.

#![expect(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use engine::architecture::Architecture;
use engine::live::weights::tensor::{Dtype, Tensor};
use engine::live::weights::{Weights, WeightsError};
use safetensors::tensor::TensorView;

fn tiny(name: &str) -> Architecture {
    Architecture::builtin(name).unwrap()
}

fn tensors(weights: &Weights) -> BTreeMap<String, Tensor> {
    weights.iter().map(|(name, tensor)| (name.to_owned(), tensor.clone())).collect()
}

fn save<'a>(path: &Path, tensors: impl Iterator<Item = (&'a str, &'a Tensor)>) {
    let dtype = |tensor: &Tensor| match tensor.dtype() {
        Dtype::Bf16 => safetensors::Dtype::BF16,
        Dtype::F16 => safetensors::Dtype::F16,
        Dtype::F32 => safetensors::Dtype::F32,
    };
    let views = tensors
        .map(|(name, tensor)| (name, TensorView::new(dtype(tensor), tensor.shape().to_vec(), tensor.bytes()).unwrap()));
    safetensors::serialize_to_file(views, None, path).unwrap();
}

fn assert_same(a: &Weights, b: &Weights) {
    assert!(a.iter().map(|(name, _)| name).eq(b.iter().map(|(name, _)| name)));
    for (name, tensor) in a.iter() {
        assert_eq!((tensor.shape(), tensor.bytes()), (b.tensor(name).shape(), b.tensor(name).bytes()), "{name}");
    }
}

#[test]
fn one_file_a_folder_and_shards_give_the_same_weights() {
    for model in ["tiny-ouro", "tiny-huginn"] {
        let architecture = tiny(model);
        let weights = Weights::random_with_optional(&architecture, 3);
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("model.safetensors");
        save(&file, weights.iter());
        assert_same(&weights, &Weights::load(&file, &architecture).unwrap());
        assert_same(&weights, &Weights::load(folder.path(), &architecture).unwrap());

        let sharded = tempfile::tempdir().unwrap();
        let mut index = BTreeMap::new();
        for shard in 0..3usize {
            let name = format!("model-{shard}-of-3.safetensors");
            let part = || weights.iter().enumerate().filter(move |(i, _)| i % 3 == shard).map(|(_, tensor)| tensor);
            save(&sharded.path().join(&name), part());
            index.extend(part().map(|(tensor, _)| (tensor.to_owned(), name.clone())));
        }
        let index = serde_json::json!({ "metadata": { "total_size": 1 }, "weight_map": index });
        fs::write(sharded.path().join("model.safetensors.index.json"), index.to_string()).unwrap();
        assert_same(&weights, &Weights::load(sharded.path(), &architecture).unwrap());
    }
}

#[test]
fn f32_files_are_read_as_they_are() {
    let architecture = tiny("tiny-ouro");
    let weights = Weights::random(&architecture, 3);
    let wide: BTreeMap<String, Tensor> = weights
        .iter()
        .map(|(name, tensor)| (name.to_owned(), Tensor::from_f32(tensor.shape(), tensor.to_f32().into_owned())))
        .collect();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("weights.safetensors");
    save(&file, wide.iter().map(|(name, tensor)| (name.as_str(), tensor)));
    let loaded = Weights::load(&file, &architecture).unwrap();
    for (name, tensor) in weights.iter() {
        assert_eq!((loaded.tensor(name).dtype(), loaded.tensor(name).to_bf16()), (Dtype::F32, tensor.to_bf16()));
    }
}

#[test]
fn tied_heads_and_tables_of_angles_are_not_read() {
    let architecture = tiny("tiny-huginn");
    let mut tensors = tensors(&Weights::random(&architecture, 3));
    for name in ["lm_head.weight", "freqs_cis"] {
        tensors.insert(name.into(), Tensor::from_f32(&[1], vec![1.0]));
    }
    let weights = Weights::from_tensors(tensors, &architecture).unwrap();
    assert!(weights.get("lm_head.weight").is_none());
}

fn error(edit: impl FnOnce(&mut BTreeMap<String, Tensor>)) -> String {
    let architecture = tiny("tiny-ouro");
    let mut tensors = tensors(&Weights::random(&architecture, 3));
    edit(&mut tensors);
    Weights::from_tensors(tensors, &architecture).unwrap_err().to_string()
}

#[test]
fn a_missing_tensor_is_named_with_its_shape() {
    let error = error(|tensors| drop(tensors.remove("model.norm.weight")));
    assert_eq!(error, "the weights lack `model.norm.weight` [64]");
}

#[test]
fn a_misnamed_tensor_is_named_with_both_names() {
    let error = error(|tensors| {
        let tensor = tensors.remove("model.layers.1.mlp.up_proj.weight").unwrap();
        tensors.insert("model.layers.1.mlp.up.weight".into(), tensor);
    });
    assert_eq!(
        error,
        "the weights lack `model.layers.1.mlp.up_proj.weight` [176, 64]; \
         is it the one named `model.layers.1.mlp.up.weight`?"
    );
}

#[test]
fn a_misshapen_tensor_is_named_with_both_shapes() {
    let error = error(|tensors| {
        tensors.insert("lm_head.weight".into(), Tensor::from_f32(&[64, 2], vec![0.0; 128]));
    });
    assert_eq!(error, "`lm_head.weight` must be [512, 64] for tiny-ouro, got [64, 2]");
}

#[test]
fn a_stranger_and_half_a_lookahead_gate_are_named() {
    let one = || Tensor::from_f32(&[1], vec![1.0]);
    let stranger = error(|tensors| drop(tensors.insert("lookahead_gates.bias".into(), one())));
    assert_eq!(stranger, "tiny-ouro has no tensor `lookahead_gates.bias`");
    let half = error(|tensors| drop(tensors.insert("lookahead_gate.bias".into(), one())));
    assert_eq!(half, "the weights lack `lookahead_gate.weight` [1, 64]");
}

#[test]
fn files_that_are_not_there_or_not_weights_are_named() {
    let architecture = tiny("tiny-ouro");
    let folder = tempfile::tempdir().unwrap();
    let load = |path: &Path| Weights::load(path, &architecture).unwrap_err();
    assert!(matches!(load(folder.path()), WeightsError::NoFiles { .. }));
    let text = folder.path().join("model.safetensors");
    assert!(matches!(load(&text), WeightsError::Io { .. }));
    fs::write(&text, "not weights").unwrap();
    let error = load(&text);
    assert!(matches!(&error, WeightsError::Header { path, .. } if *path == text), "{error}");
    let index = folder.path().join("model.safetensors.index.json");
    fs::write(&index, r#"{"weight_map": {"lm_head.weight": "gone.safetensors"}}"#).unwrap();
    assert!(load(folder.path()).to_string().contains("gone.safetensors"));
    fs::write(&index, "[]").unwrap();
    assert!(matches!(load(folder.path()), WeightsError::Index { .. }));
}
