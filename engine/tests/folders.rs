//! Model folders: what is written can be read, and whatever is wrong with a folder is named with what to change.

#![expect(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use engine::architecture::Architecture;
use engine::live::weights::Weights;
use engine::live::weights::folder::ModelFolder;
use engine::live::weights::tensor::Tensor;
use engine::models::initial_state::InitialState;
use engine::models::rope::RopeScaling;
use engine::units::Depth;
use serde_json::{Map, Value, json};

fn tiny(name: &str) -> Architecture {
    Architecture::builtin(name).unwrap()
}

/// A new folder of random weights, with some keys of its config changed; null takes a key away.
fn folder(model: &str, changes: Value) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    ModelFolder::write_random(&tiny(model), 3, folder.path()).unwrap();
    change(&folder.path().join("config.json"), changes);
    folder
}

fn change(path: &Path, changes: Value) {
    let mut config: Map<String, Value> = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    for (key, value) in changes.as_object().unwrap() {
        match value {
            Value::Null => drop(config.remove(key)),
            value => drop(config.insert(key.clone(), value.clone())),
        }
    }
    fs::write(path, json!(config).to_string()).unwrap();
}

/// What is said of a folder that cannot be used, from its configs on to its weights.
fn error(path: &Path) -> String {
    let opened = ModelFolder::open(path).map_err(|error| error.to_string());
    opened.and_then(|folder| folder.weights().map_err(|error| error.to_string())).unwrap_err()
}

#[test]
fn a_folder_that_was_written_is_the_model_again() {
    let scaling = RopeScaling::Linear { factor: 2.0 };
    let unlike = Architecture {
        name: "unlike".into(),
        kv_heads: Some(2),
        rope_theta: Some(123.0),
        rope_scaling: Some(scaling),
        norm_epsilon: Some(1e-3),
        tied_head: Some(true),
        r_max: Depth(3),
        ..tiny("tiny-ouro")
    };
    let builtin = ["tiny-ouro", "tiny-huginn", "tiny-nanbeige", "tiny-recurrent-llama", "tiny-recurrent-olmo"];
    for model in builtin.map(tiny).into_iter().chain([unlike]) {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join(&model.name);
        ModelFolder::write_random(&model, 3, &path).unwrap();
        let read = ModelFolder::open(&path).unwrap();
        let theta = model.rope_theta();
        // What was a default is said.
        let said = Architecture {
            kv_heads: Some(model.kv_heads()),
            rope_theta: Some(theta),
            norm_epsilon: Some(model.norm_epsilon.unwrap_or(1e-6)),
            tied_head: Some(model.tied_head()),
            ..model.clone()
        };
        assert_eq!(*read.architecture(), said);
        let (written, weights) = (Weights::random(&model, 3), read.weights().unwrap());
        assert!(written.iter().zip(weights.iter()).all(|(a, b)| a.0 == b.0 && a.1.bytes() == b.1.bytes()));
        let again = ModelFolder::write_random(&model, 3, &path).unwrap_err().to_string();
        assert!(again.ends_with("holds files already: name a folder that is new or empty"), "{again}");
    }
}

#[test]
fn what_a_config_leaves_out_is_the_classes_default() {
    let sparse = json!({"rope_theta": null, "rms_norm_eps": null, "total_ut_steps": null, "head_dim": null,
        "tie_word_embeddings": null, "eos_token_id": [1, 2], "max_position_embeddings": 99});
    let read = ModelFolder::open(folder("tiny-ouro", sparse).path()).unwrap();
    let model = read.architecture();
    assert_eq!((model.rope_theta(), model.norm_epsilon(), model.r_max), (1e4, 1e-6, Depth(4)));
    assert_eq!((model.head_dim, model.tied_head()), (16, false));
    assert_eq!((read.config.context_tokens, &read.config.end_tokens[..]), (Some(99), &[1, 2][..]));

    let sparse = json!({"mean_recurrence": null, "rope_base": null, "num_key_value_heads": null});
    let written = folder("tiny-huginn", sparse);
    let read = ModelFolder::open(written.path()).unwrap();
    assert_eq!((read.architecture().r_max, read.architecture().rope_theta()), (Depth(32), 5e4));
    assert_eq!(read.config.initial_state, InitialState::Noise { seed: 0 });

    // Models that were made recurrent still name Huginn's end tokens, which mean other things in their vocabularies.
    let foreign = folder("tiny-recurrent-llama", json!({"eos_token_id": [65_505, 7]}));
    assert_eq!(ModelFolder::open(foreign.path()).unwrap().config.end_tokens, [7]);
    let generation = json!({"eos_token_id": [65_504, 65_508]});
    fs::write(foreign.path().join("generation_config.json"), generation.to_string()).unwrap();
    assert!(ModelFolder::open(foreign.path()).unwrap().config.end_tokens.is_empty());

    let generation = json!({"eos_token_id": 7, "do_sample": true, "temperature": 0.5, "top_k": 9, "top_p": 0.8});
    fs::write(written.path().join("generation_config.json"), generation.to_string()).unwrap();
    let read = ModelFolder::open(written.path()).unwrap();
    assert_eq!(read.config.end_tokens, [7]);
    let generation = read.generation;
    assert_eq!((generation.do_sample, generation.temperature), (Some(true), Some(0.5)));
    assert_eq!((generation.top_k, generation.top_p), (Some(9), Some(0.8)));
}

#[test]
fn what_a_config_asks_for_and_we_cannot_do_is_named() {
    let check = |model: &str, changes: Value, ends: &str| {
        let folder = folder(model, changes);
        let error = error(folder.path());
        assert!(error.contains("config.json: ") && error.ends_with(ends), "{error}");
    };
    check(
        "tiny-ouro",
        json!({"hidden_act": "gelu"}),
        "`hidden_act`: must be silu, got `gelu`: nothing else is supported",
    );
    check("tiny-ouro", json!({"use_sliding_window": true}), "`use_sliding_window`: must be false: it is not supported");
    check("tiny-ouro", json!({"early_exit_step": 2}), "`early_exit_step`: must be null, got 2: it is not supported");
    check(
        "tiny-ouro",
        json!({"layer_types": ["full_attention", "sliding_attention"]}),
        "`layer_types`: must hold `full_attention` alone, got \"sliding_attention\": nothing else is supported",
    );
    check(
        "tiny-ouro",
        json!({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}),
        "`rope_scaling.rope_type`: must be default, linear, llama3 or yarn, got `dynamic`: nothing else is supported",
    );
    check("tiny-ouro", json!({"rope_scaling": {"type": "linear"}}), "`rope_scaling.factor`: is missing");
    check("tiny-ouro", json!({"hidden_size": null}), "`hidden_size`: is missing: the model's size depends on it");
    check("tiny-ouro", json!({"hidden_size": "64"}), "`hidden_size`: must be a whole number, got \"64\"");
    check("tiny-ouro", json!({"num_key_value_heads": 3}), "kv_heads: must divide heads = 4, got 3");
    check(
        "tiny-ouro",
        json!({"total_ut_steps": 300}),
        "`total_ut_steps`: must be a number of loops from 1 to 254, got 300",
    );
    check("tiny-ouro", json!({"eos_token_id": -1}), "`eos_token_id`: must be a token id or a list of them, got -1");
    check(
        "tiny-ouro",
        json!({"model_type": "llama"}),
        "`model_type`: must be one of ouro, huginn_raven, nanbeige; got `llama`: no other looped family is known",
    );
    check(
        "tiny-huginn",
        json!({"injection_type": "add"}),
        "`injection_type`: must be linear, got `add`: nothing else is supported",
    );
    check("tiny-huginn", json!({"test_time_noise": 0.1}), "`test_time_noise`: must be 0, got 0.1: it is not supported");
    check(
        "tiny-huginn",
        json!({"init_values": {"embed_scale": 1.0}}),
        "`init_values.embed_scale`: must be 8.48528137423857, got 1: it is not supported",
    );
}

#[test]
fn files_that_are_no_weights_are_called_what_they_are() {
    let with = |edit: &dyn Fn(&Path), ends: &str| {
        let folder = folder("tiny-ouro", json!({}));
        edit(&folder.path().join("model.safetensors"));
        let error = error(folder.path());
        assert!(error.contains(ends), "{error}");
    };
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 2869336434\n";
    with(
        &|file| fs::write(file, pointer).unwrap(),
        "is a pointer of Git's large file storage and not the file: fetch it with `git lfs pull`",
    );
    with(
        &|file| fs::write(file, b"PK\x03\x04rest of an archive").unwrap(),
        "is a PyTorch file: save the model as safetensors",
    );
    let rename = |file: &Path| fs::rename(file, file.with_file_name("pytorch_model.bin")).unwrap();
    with(&rename, "pytorch_model.bin is not read, so save the model as safetensors");
    let cut = |file: &Path| {
        let bytes = fs::read(file).unwrap();
        fs::write(file, &bytes[..bytes.len() - 100]).unwrap();
    };
    with(&cut, "is cut off: it has");
    with(&|file| fs::write(file, "no tensors at all, but a text").unwrap(), "not a safetensors file");
}

#[cfg(unix)]
#[test]
fn links_are_followed_and_loops_of_links_are_an_error() {
    use std::os::unix::fs::symlink;

    let written = folder("tiny-ouro", json!({}));
    // As a cache of downloads has it: names are links to contents elsewhere.
    let linked = tempfile::tempdir().unwrap();
    for name in ["config.json", "model.safetensors"] {
        symlink(written.path().join(name), linked.path().join(name)).unwrap();
    }
    ModelFolder::open(linked.path()).unwrap().weights().unwrap();

    let file = written.path().join("model.safetensors");
    fs::remove_file(&file).unwrap();
    symlink(&file, &file).unwrap();
    let error = error(written.path());
    assert!(error.contains("model.safetensors: ") && error.contains("symbolic links"), "{error}");
}

#[test]
fn an_index_names_files_of_its_own_folder() {
    for shard in ["../elsewhere.safetensors", "/etc/passwd", "a/b.safetensors", ".."] {
        let folder = folder("tiny-ouro", json!({}));
        let index = json!({"weight_map": {"model.norm.weight": shard}});
        fs::write(folder.path().join("model.safetensors.index.json"), index.to_string()).unwrap();
        let error = error(folder.path());
        let expected = format!("`model.norm.weight` must be in a file of this folder, not in `{shard}`");
        assert!(error.ends_with(&expected), "{error}");
    }
}

fn changed(model: &Architecture, edit: impl FnOnce(&mut BTreeMap<String, Tensor>)) -> tempfile::TempDir {
    let weights = Weights::random(&Architecture { tied_head: Some(false), ..model.clone() }, 3);
    let mut tensors = weights.iter().map(|(name, tensor)| (name.to_owned(), tensor.clone())).collect();
    edit(&mut tensors);
    let folder = tempfile::tempdir().unwrap();
    ModelFolder::write_random(model, 3, folder.path()).unwrap();
    let views = tensors.iter().map(|(name, tensor)| {
        let dtype = match tensor.dtype().bytes() {
            2 => safetensors::Dtype::BF16,
            _ => safetensors::Dtype::F32,
        };
        (name, safetensors::tensor::TensorView::new(dtype, tensor.shape().to_vec(), tensor.bytes()).unwrap())
    });
    safetensors::serialize_to_file(views, None, &folder.path().join("model.safetensors")).unwrap();
    folder
}

#[test]
fn numbers_that_are_none_are_named_with_their_place() {
    let name = "model.layers.1.mlp.down_proj.weight";
    let folder = changed(&tiny("tiny-ouro"), |tensors| {
        let mut values = tensors[name].to_f32().into_owned();
        values[7] = f32::INFINITY;
        let shape = tensors[name].shape().to_vec();
        tensors.insert(name.into(), Tensor::from_f32(&shape, values));
    });
    let error = error(folder.path());
    assert!(
        error.starts_with(&format!("`{name}` holds a number that is infinite or no number, at index 7")),
        "{error}"
    );
}

#[test]
fn the_config_decides_whether_a_head_is_read() {
    for model in ["tiny-ouro", "tiny-huginn"] {
        let untied = Architecture { tied_head: Some(false), ..tiny(model) };
        let folder = changed(&untied, |_| ());
        let weights = ModelFolder::open(folder.path()).unwrap().weights().unwrap();
        assert!(weights.get("lm_head.weight").is_some() && weights.warnings().is_empty(), "{model}");

        let tied = Architecture { tied_head: Some(true), ..tiny(model) };
        let folder = changed(&tied, |_| ());
        let weights = ModelFolder::open(folder.path()).unwrap().weights().unwrap();
        assert!(weights.get("lm_head.weight").is_none(), "{model}");
        assert!(weights.warnings()[0].starts_with("`lm_head.weight` differs from the embedding"), "{model}");

        let missing = changed(&untied, |tensors| drop(tensors.remove("lm_head.weight")));
        assert!(error(missing.path()).starts_with("the weights lack `lm_head.weight`"), "{model}");
    }
}

#[test]
fn public_aliases_and_tables_of_angles_are_known() {
    let folder = changed(&tiny("tiny-ouro"), |tensors| {
        let head = tensors.remove("lm_head.weight").unwrap();
        tensors.insert("lm_head.original.weight".into(), head);
        tensors.insert("model.rotary_emb.inv_freq".into(), Tensor::from_f32(&[8], vec![1.0; 8]));
    });
    let weights = ModelFolder::open(folder.path()).unwrap().weights().unwrap();
    assert!(weights.get("lm_head.weight").is_some());
}
