//! The tokenizer of a folder of random weights: a token a byte, and ChatML.

use std::path::Path;

use serde_json::{Map, Value, json};

/// Tokens that are no text, by id.
const SPECIAL: [&str; 3] = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"];

/// Ids that it makes: a model with fewer cannot have it.
pub(super) const IDS: u64 = SPECIAL.len() as u64 + 256;

/// ChatML.
const TEMPLATE: &str = "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n\
                        {% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

/// Writes its files into a folder, with what ends an answer.
///
/// # Errors
/// A file that could not be written, by name.
pub(super) fn write(folder: &Path) -> Result<(), String> {
    for (name, content) in [
        ("tokenizer.json", tokenizer()),
        ("tokenizer_config.json", config()),
        ("generation_config.json", json!({ "do_sample": true, "temperature": 1.0, "eos_token_id": [2, 0] })),
    ] {
        let path = folder.join(name);
        std::fs::write(&path, format!("{content:#}\n")).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(())
}

fn tokenizer() -> Value {
    let special = |(id, content): (usize, &&str)| {
        json!({ "id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
                "normalized": false, "special": true })
    };
    let level = json!({ "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false });
    let named = SPECIAL.iter().map(|&name| name.to_owned());
    let bytes = (0..=u8::MAX).map(|byte| character(byte).to_string());
    let vocab: Map<String, Value> = named.chain(bytes).enumerate().map(|(id, token)| (token, id.into())).collect();
    json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": SPECIAL.iter().enumerate().map(special).collect::<Vec<_>>(),
        "normalizer": null,
        "pre_tokenizer": level.clone(),
        "post_processor": null,
        "decoder": level,
        "model": { "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
                   "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
                   "vocab": vocab, "merges": [] },
    })
}

fn config() -> Value {
    json!({
        "tokenizer_class": "GPT2Tokenizer",
        "bos_token": null,
        "eos_token": SPECIAL[2],
        "pad_token": SPECIAL[0],
        "clean_up_tokenization_spaces": false,
        "chat_template": TEMPLATE,
    })
}

/// The printable character that stands for a byte in byte-level vocabularies: itself, or else the next from U+0100 on.
fn character(byte: u8) -> char {
    let prints = |byte: u8| matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
    let before = (0..byte).filter(|&other| !prints(other)).count() as u32;
    let code = if prints(byte) { u32::from(byte) } else { 0x100 + before };
    char::from_u32(code).expect("the alphabet lies below U+0144")
}

#[cfg(test)]
mod tests {
    use serve::text::{Chat, Message, Tokenizer};

    use super::*;

    #[test]
    fn it_opens_and_gives_back_every_text() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path()).unwrap();
        let tokenizer = std::sync::Arc::new(Tokenizer::open(folder.path(), IDS).unwrap());
        for text in ["", "hello", "naïve — 東京 🌍\n\t\0", " two  spaces "] {
            let ids = tokenizer.encode(text, true).unwrap();
            assert_eq!(ids.len(), text.len(), "a token a byte");
            assert_eq!(tokenizer.decode(&ids, true).unwrap(), text);
        }
        let chat = Chat::new(tokenizer.clone()).unwrap();
        let ids = chat.render(&[Message { role: "user".into(), content: "hi".into() }], true).unwrap();
        let text = tokenizer.decode(&ids, false).unwrap();
        assert_eq!(text, "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");
    }
}
