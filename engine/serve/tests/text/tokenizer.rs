//! Whole texts.

use proptest::prelude::*;
use serve::text::{NamedToken, TextError};

use crate::folders::{VOCAB, byte_fallback, byte_level, changed, expected, folder, ids, open};

#[test]
fn texts_become_hugging_faces_ids_and_come_back() {
    let tokenizer = byte_level();
    let strings = &expected()["encode"]["strings"];
    assert_eq!(strings.as_array().unwrap().len(), 20);
    for string in strings.as_array().unwrap() {
        let text = string["text"].as_str().unwrap();
        let encoded = tokenizer.encode(text, true).unwrap();
        assert_eq!(encoded, ids(&string["ids"]), "{text:?}");
        assert_eq!(tokenizer.decode(&encoded, false).unwrap(), string["decoded"], "{text:?}");
        assert_eq!(tokenizer.decode(&encoded, true).unwrap(), string["decoded_without_special"], "{text:?}");
    }
}

#[test]
fn ids_that_are_not_utf8_decode_as_hugging_face_says() {
    let tokenizer = byte_level();
    let expected = expected();
    let runs = expected["greedy"]["runs"].as_array().unwrap();
    assert!(!runs.is_empty());
    for run in runs {
        let tokens = ids(&run["tokens"]);
        assert_eq!(tokenizer.decode(&tokens, false).unwrap(), run["text"]);
        assert_eq!(tokenizer.decode(&tokens, true).unwrap(), run["text_without_special"]);
    }
}

#[test]
fn the_configuration_names_the_special_tokens() {
    let token = |id, text: &str| Some(NamedToken { id, text: text.to_owned() });
    let objects = changed(VOCAB, |_, config| {
        config["bos_token"] = serde_json::json!({"content": "<|im_start|>", "lstrip": false});
        config["pad_token"] = serde_json::Value::Null;
    });
    for (tokenizer, pad) in [(byte_level(), token(0, "<|endoftext|>")), (objects.unwrap(), None)] {
        assert_eq!(tokenizer.bos().cloned(), token(1, "<|im_start|>"));
        assert_eq!(tokenizer.eos().cloned(), token(2, "<|im_end|>"));
        assert_eq!(tokenizer.pad().cloned(), pad);
        assert_eq!(tokenizer.vocab_size(), 400);
    }
}

#[test]
fn a_tokenizer_beyond_the_models_vocabulary_is_an_error_with_both_numbers() {
    for padded in [400, 401, 65_536] {
        assert!(changed(padded, |_, _| ()).is_ok(), "{padded}");
    }
    for vocab in [399, 1, 0] {
        let message = changed(vocab, |_, _| ()).unwrap_err().to_string();
        assert!(message.contains("up to 399") && message.contains(&format!("has {vocab} ids")), "{message}");
    }
}

#[test]
fn a_token_that_only_the_configuration_calls_special_is_added_behind_the_others() {
    let add = |_: &mut _, config: &mut serde_json::Value| config["pad_token"] = "<|pad|>".into();
    let tokenizer = changed(401, add).unwrap();
    assert_eq!(tokenizer.pad(), Some(&NamedToken { id: 400, text: "<|pad|>".to_owned() }));
    let encoded = tokenizer.encode("a<|pad|>", false).unwrap();
    assert_eq!(encoded, [67, 400]);
    assert_eq!(tokenizer.decode(&encoded, true).unwrap(), "a");
    assert!(matches!(changed(400, add), Err(TextError::Vocabulary { largest: 400, vocab: 400, .. })));
}

#[test]
fn add_bos_token_puts_it_first_and_once() {
    let tokenizer = changed(VOCAB, |_, config| config["add_bos_token"] = true.into()).unwrap();
    for (text, special, expected) in
        [("a", true, vec![1, 67]), ("a", false, vec![67]), ("", true, vec![1]), ("<|im_start|>a", true, vec![1, 67])]
    {
        assert_eq!(tokenizer.encode(text, special).unwrap(), expected, "{text:?} {special}");
    }
    // Here tokenizer.json puts it there already.
    assert_eq!(byte_fallback(None).encode("a", true).unwrap(), [1, 263]);
    assert_eq!(byte_fallback(None).encode("a", false).unwrap(), [263]);
}

#[test]
fn what_training_left_in_the_file_cuts_and_fills_no_text() {
    let tokenizer = changed(VOCAB, |tokenizer, _| {
        tokenizer["truncation"] =
            serde_json::json!({"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0});
        tokenizer["padding"] = serde_json::json!({"strategy": {"Fixed": 8}, "direction": "Right",
            "pad_to_multiple_of": null, "pad_id": 0, "pad_type_id": 0, "pad_token": "<|endoftext|>"});
    });
    assert_eq!(
        tokenizer.unwrap().encode("abab", true).unwrap().len(),
        byte_level().encode("abab", true).unwrap().len()
    );
}

#[test]
fn a_wrong_file_is_named() {
    let good = std::fs::read_to_string(crate::folders::fixtures().join("tokenizer/tokenizer.json")).unwrap();
    let cases = [
        (None, None, "tokenizer.json", "cannot read"),
        (Some("{}"), None, "tokenizer.json", "must be a tokenizer.json"),
        (Some("version https://git-lfs"), None, "tokenizer.json", "must be a tokenizer.json"),
        (Some(good.as_str()), Some("{\"bos_token\": 3}"), "tokenizer_config.json", "a special token must be"),
        (Some(good.as_str()), Some("{"), "tokenizer_config.json", "line 1"),
    ];
    for (tokenizer, config, name, says) in cases {
        let tokenizer = tokenizer.map(|text| ("tokenizer.json", text));
        let config = config.map(|text| ("tokenizer_config.json", text));
        let files: Vec<(&str, &str)> = tokenizer.into_iter().chain(config).collect();
        let message = open(VOCAB, &files).unwrap_err().to_string();
        assert!(message.contains(name) && message.contains(says), "{message}");
    }
    // A folder where a file should be is not taken for a missing file.
    let folder = folder(&[("tokenizer.json", &good)]);
    std::fs::create_dir(folder.path().join("chat_template.jinja")).unwrap();
    let error = serve::text::Tokenizer::open(folder.path(), VOCAB).unwrap_err();
    assert!(matches!(&error, TextError::Io { path, .. } if path.ends_with("chat_template.jinja")), "{error}");
    // The configuration may be missing.
    assert_eq!(open(VOCAB, &[("tokenizer.json", &good)]).unwrap().bos(), None);
}

#[test]
fn a_tokens_own_text_keeps_its_space_and_its_bytes() {
    let spaced = byte_level().encode("a  b c", false).unwrap();
    let texts: Vec<String> = spaced.iter().map(|&id| byte_level().token_text(id).unwrap()).collect();
    assert_eq!(texts, ["a", " ", " b", " c"]);
    let emoji = byte_level().encode("😀", false).unwrap();
    let bytes: Vec<u8> = emoji.iter().flat_map(|&id| byte_level().token_bytes(id).unwrap()).collect();
    assert_eq!(bytes, "😀".as_bytes());
    assert_eq!(byte_level().token_text(emoji[0]).unwrap(), "\u{fffd}");
    assert_eq!(byte_level().token_text(2).unwrap(), "<|im_end|>");
    assert_eq!(byte_level().token_text(400).unwrap(), "");

    for (id, bytes) in [(263, &b" a"[..]), (260, b"a"), (259, b" "), (264, b"  "), (3 + 0xe4, &[0xe4]), (2, b"</s>")] {
        assert_eq!(byte_fallback(None).token_bytes(id).unwrap(), bytes, "{id}");
    }
}

#[test]
fn long_and_odd_texts_come_back() {
    let tokenizer = byte_level();
    for unit in [" ", "a", "\n", "<|", "é", "\u{e000}", "1", "'s", "\0", "\u{10ffff}"] {
        let text = unit.repeat(300_000);
        assert!(tokenizer.decode(&tokenizer.encode(&text, true).unwrap(), false).unwrap() == text, "{unit:?}");
    }
}

proptest! {
    /// The bytes of the tokens are the bytes of the text.
    #[test]
    fn a_text_is_what_its_tokens_bytes_spell(ids in prop::collection::vec(0u32..410, 0..40)) {
        let tokenizer = byte_level();
        let bytes: Vec<u8> = ids.iter().flat_map(|&id| tokenizer.token_bytes(id).unwrap()).collect();
        prop_assert_eq!(String::from_utf8_lossy(&bytes), tokenizer.decode(&ids, false).unwrap());
    }

    /// No text is lost, whatever it holds.
    #[test]
    fn a_text_comes_back(text in "\\PC*|[ \\n\\t<|>a-z_]*") {
        let tokenizer = byte_level();
        prop_assert_eq!(tokenizer.decode(&tokenizer.encode(&text, true).unwrap(), false).unwrap(), text);
    }
}
