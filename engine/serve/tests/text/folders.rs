//! Tokenizer folders for the tests.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};
use serve::text::{TextError, Tokenizer};
use tempfile::TempDir;

/// Ids of the fixture's tokenizer, and of the model that it is for.
pub(crate) const VOCAB: u64 = 400;

pub(crate) fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

pub(crate) fn read_json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// What Hugging Face's code computes with the fixture's tokenizer.
pub(crate) fn expected() -> Value {
    read_json(&fixtures().join("tokenizer/expected.json"))
}

/// The fixture's byte-level tokenizer.
pub(crate) fn byte_level() -> Arc<Tokenizer> {
    Arc::new(Tokenizer::open(&fixtures().join("tokenizer"), VOCAB).unwrap())
}

/// The fixture's tokenizer after changes to its two files, for a model of `vocab` ids.
pub(crate) fn changed(vocab: u64, change: impl FnOnce(&mut Value, &mut Value)) -> Result<Arc<Tokenizer>, TextError> {
    let from = fixtures().join("tokenizer");
    let mut tokenizer = read_json(&from.join("tokenizer.json"));
    let mut config = read_json(&from.join("tokenizer_config.json"));
    change(&mut tokenizer, &mut config);
    open(vocab, &[("tokenizer.json", &tokenizer.to_string()), ("tokenizer_config.json", &config.to_string())])
}

/// The fixture's tokenizer with another chat template.
pub(crate) fn with_template(template: &str) -> Arc<Tokenizer> {
    changed(VOCAB, |_, config| config["chat_template"] = template.into()).unwrap()
}

/// A tokenizer that marks spaces with `▁` and spells unknown characters as tokens of one byte.
/// Ids: 0 to 2 special, 3 to 258 bytes, then pieces.
pub(crate) fn byte_fallback(template: Option<&str>) -> Arc<Tokenizer> {
    let bytes = (0..=255).map(|byte| format!("<0x{byte:02X}>"));
    let pieces = ["▁", "a", "b", "é", "▁a", "▁▁", "\u{fffd}"].map(str::to_owned);
    let tokens = ["<unk>", "<s>", "</s>"].map(str::to_owned).into_iter().chain(bytes).chain(pieces);
    let vocab: serde_json::Map<String, Value> = tokens.zip(0..).map(|(token, id)| (token, id.into())).collect();
    let special = |id: u32, content: &str| {
        json!({"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
               "normalized": false, "special": true})
    };
    let tokenizer = json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": [special(0, "<unk>"), special(1, "<s>"), special(2, "</s>")],
        "normalizer": null,
        "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": false},
        "post_processor": {"type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}},
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "ByteFallback"},
            {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": {"type": "BPE", "dropout": null, "unk_token": "<unk>", "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": true, "byte_fallback": true, "ignore_merges": false,
            "vocab": vocab, "merges": [["▁", "a"], ["▁", "▁"]]},
    });
    let config = json!({"bos_token": "<s>", "eos_token": {"content": "</s>"}, "add_bos_token": true,
                        "chat_template": template});
    open(266, &[("tokenizer.json", &tokenizer.to_string()), ("tokenizer_config.json", &config.to_string())]).unwrap()
}

/// A tokenizer of a folder with these files.
pub(crate) fn open(vocab: u64, files: &[(&str, &str)]) -> Result<Arc<Tokenizer>, TextError> {
    Tokenizer::open(folder(files).path(), vocab).map(Arc::new)
}

pub(crate) fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

pub(crate) fn ids(value: &Value) -> Vec<u32> {
    serde_json::from_value(value.clone()).unwrap()
}
