//! A tokenizer for models that were made up: every byte is a token.

use std::path::Path;

use serde_json::{Map, Value, json};

use super::byte_level;
use super::error::TextError;

/// Special tokens in the order of their ids, from 0; those of the bytes follow.
const SPECIAL: [&str; 3] = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"];

/// Each message between its two special tokens, with the role in its first line.
const TEMPLATE: &str = "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n\
                        {% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

/// Writes `tokenizer.json`, `tokenizer_config.json` and `generation_config.json` of a tokenizer with 259 ids: three
/// special tokens and the 256 bytes. Chats are in ChatML, and answers end at either of its end tokens.
///
/// # Errors
/// A file cannot be written.
pub fn write_every_byte(folder: &Path) -> Result<(), TextError> {
    let characters = (0..=u8::MAX).map(|byte| byte_level::character(byte).to_string());
    let tokens = SPECIAL.map(str::to_owned).into_iter().chain(characters);
    let vocab: Map<String, Value> = tokens.zip(0..).map(|(token, id)| (token, Value::from(id))).collect();
    let special = |(content, id): (&str, u32)| {
        json!({
            "id": id, "content": content, "special": true,
            "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
        })
    };
    let byte_level =
        json!({ "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false });
    let tokenizer = json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": SPECIAL.into_iter().zip(0..).map(special).collect::<Vec<_>>(),
        "normalizer": null,
        "pre_tokenizer": byte_level,
        "post_processor": null,
        "decoder": byte_level,
        "model": {
            "type": "BPE", "vocab": vocab, "merges": [], "dropout": null, "unk_token": null,
            "continuing_subword_prefix": null, "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
        },
    });
    let config = json!({
        "bos_token": SPECIAL[1],
        "eos_token": SPECIAL[2],
        "pad_token": SPECIAL[0],
        "chat_template": TEMPLATE,
        "clean_up_tokenization_spaces": false,
    });
    let generation = json!({ "bos_token_id": 1, "eos_token_id": [2, 0], "pad_token_id": 0 });
    let files =
        [("tokenizer.json", tokenizer), ("tokenizer_config.json", config), ("generation_config.json", generation)];
    for (name, content) in files {
        let path = folder.join(name);
        std::fs::write(&path, format!("{content:#}\n")).map_err(|source| TextError::Write { path, source })?;
    }
    Ok(())
}
