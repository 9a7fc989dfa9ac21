//! Conversations, and what their messages cannot do.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::json;
use serve::text::{Chat, Message, TextError, Tokenizer};

use crate::folders::{byte_fallback, byte_level, changed, expected, ids, with_template};

fn message(role: &str, content: &str) -> Message {
    Message { role: role.to_owned(), content: content.to_owned() }
}

fn special(ids: &[u32]) -> Vec<u32> {
    ids.iter().copied().filter(|&id| id < 3).collect()
}

/// The ids and their text.
fn rendered(tokenizer: &Arc<Tokenizer>, messages: &[Message]) -> (Vec<u32>, String) {
    let ids = Chat::new(tokenizer.clone()).unwrap().render(messages, false).unwrap();
    let text = tokenizer.decode(&ids, false).unwrap();
    (ids, text)
}

#[test]
fn conversations_become_hugging_faces_ids_except_for_special_tokens_in_messages() {
    let tokenizer = byte_level();
    let chat = Chat::new(tokenizer.clone()).unwrap();
    let expected = expected();
    let mut injected = 0;
    for conversation in expected["chat_template"]["conversations"].as_array().unwrap() {
        let messages: Vec<Message> = serde_json::from_value(conversation["messages"].clone()).unwrap();
        for (prompted, text, hugging_face) in
            [(false, "text", "ids"), (true, "text_with_generation_prompt", "ids_with_generation_prompt")]
        {
            let text = conversation[text].as_str().unwrap();
            let hugging_face = ids(&conversation[hugging_face]);
            let ours = chat.render(&messages, prompted).unwrap();
            // As a plain prompt, the same text gives Hugging Face's ids.
            assert_eq!(tokenizer.encode(text, false).unwrap(), hugging_face);
            assert_eq!(tokenizer.decode(&ours, false).unwrap(), text);
            if messages.iter().any(|message| message.content.contains("<|")) {
                injected += 1;
                let turns = messages.len() + usize::from(prompted);
                assert_eq!(special(&ours), [1, 2].repeat(turns)[..2 * turns - usize::from(prompted)]);
                assert_eq!(special(&hugging_face).len(), special(&ours).len() + 2);
            } else {
                assert_eq!(ours, hugging_face);
            }
        }
    }
    assert_eq!(injected, 2);
}

#[test]
fn a_special_token_in_a_message_is_encoded_as_its_characters() {
    let tokenizer = with_template("{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}");
    // The same text with no special token in it, cut where the tokens were.
    let (ids, _) = rendered(&tokenizer, &[message("user", "<|im_end|>")]);
    let as_text: Vec<u8> = ids.iter().flat_map(|&id| tokenizer.token_bytes(id).unwrap()).collect();
    assert_eq!(as_text, b"<|im_start|><|im_end|><|im_end|>");
    assert_eq!(special(&ids), [1, 2]);
}

#[test]
fn messages_cannot_make_a_special_token_with_what_lies_beside_them() {
    let tokenizer = with_template("{% for m in messages %}{{ m.role }}{{ m.content }}{{ 'end|>' }}{% endfor %}");
    for (role, content) in [("<|im_", ""), ("", "<|im_"), ("<", "|im_"), ("<|", "im_"), ("<|im_end|>", "<|im_end|>")] {
        let (ids, text) = rendered(&tokenizer, &[message(role, content)]);
        assert!(special(&ids).is_empty(), "{role:?} {content:?}: {ids:?}");
        assert_eq!(text, format!("{role}{content}end|>"));
    }
}

#[test]
fn a_special_token_of_one_character_and_one_in_another_spelling_are_text_too() {
    let added = |id: u32, content: &str, normalized: bool| {
        json!({"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": true,
               "normalized": normalized, "special": true})
    };
    let tokenizer = changed(402, |tokenizer, config| {
        tokenizer["normalizer"] = json!({"type": "Lowercase"});
        let tokens = tokenizer["added_tokens"].as_array_mut().unwrap();
        tokens.push(added(400, "☆", false));
        tokens.push(added(401, "<turn>", true));
        config["chat_template"] = "{% for m in messages %}☆ {{ m.content }}<turn> {% endfor %}".into();
    })
    .unwrap();
    // Unbroken, both are found in any text.
    assert_eq!(tokenizer.encode("☆<TURN>", false).unwrap(), [400, 401]);
    for (content, text) in
        [("a", "☆a<turn>"), ("☆", "☆☆<turn>"), ("<TURN>", "☆<turn><turn>"), ("a ☆<turn", "☆a ☆<turn<turn>")]
    {
        let (ids, decoded) = rendered(&tokenizer, &[message("user", content)]);
        let special: Vec<u32> = ids.iter().copied().filter(|&id| id >= 400).collect();
        assert_eq!(special, [400, 401], "{content:?}");
        assert_eq!(decoded, text, "{content:?}");
    }
}

#[test]
fn private_use_characters_in_messages_stay() {
    let all_of_one_area: String = ('\u{e000}'..='\u{f8ff}').collect();
    for content in ["\u{e000}", "<\u{e000}|im_end|>", "<|im_end|>\u{e000}\u{e001}", &all_of_one_area] {
        let (ids, text) = rendered(&byte_level(), &[message("system", content)]);
        assert_eq!(text, format!("<|im_start|>system\n{content}<|im_end|>\n"));
        assert_eq!(special(&ids), [1, 2]);
    }
    let all: String = ['\u{e000}'..='\u{f8ff}', '\u{f0000}'..='\u{ffffd}', '\u{100000}'..='\u{10fffd}']
        .into_iter()
        .flatten()
        .collect();
    let error = Chat::new(byte_level()).unwrap().render(&[message("user", &all)], false).unwrap_err();
    assert!(matches!(error, TextError::NoMark), "{error}");
}

#[test]
fn messages_without_special_tokens_are_encoded_with_the_text_around_them() {
    // This tokenizer puts a space before the beginning of a text, and so before each piece that is encoded by itself.
    let tokenizer = byte_fallback(Some("{% for m in messages %}<s>{{ m.content }}</s>{% endfor %}"));
    let (ids, text) = rendered(&tokenizer, &[message("user", "a b"), message("user", "a")]);
    assert_eq!(ids, tokenizer.encode("<s>a b</s><s>a</s>", false).unwrap());
    assert_eq!((ids, text.as_str()), (vec![1, 260, 259, 261, 2, 1, 260, 2], "<s>a b</s><s>a</s>"));
}

#[test]
fn threads_share_a_tokenizer_and_a_template() {
    let chat = Chat::new(byte_level()).unwrap();
    let messages = [message("user", "What is the time?")];
    let here = chat.render(&messages, true).unwrap();
    std::thread::scope(|scope| {
        let there: Vec<_> = (0..4).map(|_| scope.spawn(|| chat.render(&messages, true).unwrap())).collect();
        for thread in there {
            assert_eq!(thread.join().unwrap(), here);
        }
    });
}

#[test]
fn content_is_a_string_or_a_list_of_texts() {
    for (content, expected) in [
        (json!("a"), Ok("a")),
        (json!([]), Ok("")),
        (json!([{"type": "text", "text": "a"}]), Ok("a")),
        (json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b", "more": 1}]), Ok("a\nb")),
        (json!(null), Err("must be a string or a list")),
        (json!(3), Err("must be a string or a list")),
        (json!({"type": "text", "text": "a"}), Err("must be a string or a list")),
        (json!(["a"]), Err("each part")),
        (json!([{"type": "text"}]), Err("needs a string `text`")),
        (json!([{"type": "image_url", "image_url": {}}]), Err("got `image_url`")),
    ] {
        let read = serde_json::from_value::<Message>(json!({"role": "user", "content": content, "name": "n"}));
        match (read, expected) {
            (Ok(message), Ok(text)) => assert_eq!(message.content, text),
            (Err(error), Err(says)) => assert!(error.to_string().contains(says), "{error}"),
            (read, expected) => panic!("{content}: {read:?}, not {expected:?}"),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Whatever the messages say, the turns are the template's and the text is unchanged.
    #[test]
    fn only_the_template_begins_and_ends_turns(
        contents in prop::collection::vec(
            prop::collection::vec(
                prop::sample::select(vec![
                    "<|im_end|>", "<|im_start|>", "<|endoftext|>", "<|im_", "end|>", "<", "|", ">", " ", "\n", "é", "hello",
                    "\u{e000}", "\u{e001}", "system",
                ]),
                0..8,
            ),
            1..4,
        ),
    ) {
        let messages: Vec<Message> = contents.iter().map(|parts| message("system", &parts.concat())).collect();
        let (ids, text) = rendered(&byte_level(), &messages);
        prop_assert_eq!(special(&ids), [1, 2].repeat(messages.len()));
        let turns = messages.iter().map(|m| format!("<|im_start|>system\n{}<|im_end|>\n", m.content.trim()));
        prop_assert_eq!(text, turns.collect::<String>());
    }
}
