//! The language of chat templates.

use serde_json::Value;
use serve::text::{Chat, Message, TextError};

use crate::folders::{VOCAB, changed, fixtures, folder, read_json, with_template};

fn message(role: &str, content: &str) -> Message {
    Message { role: role.to_owned(), content: content.to_owned() }
}

/// What a template writes.
fn rendered(template: &str, messages: &[Message]) -> Result<String, TextError> {
    let tokenizer = with_template(template);
    let ids = Chat::new(tokenizer.clone())?.render(messages, true)?;
    tokenizer.decode(&ids, false)
}

#[test]
fn templates_write_what_they_write_in_jinja2() {
    let expected = read_json(&fixtures().join("jinja.json"));
    let messages: Vec<Message> = serde_json::from_value(expected["messages"].clone()).unwrap();
    let cases = expected["cases"].as_array().unwrap();
    assert!(!cases.is_empty());
    for case in cases {
        let template = case["template"].as_str().unwrap();
        assert_eq!(rendered(template, &messages).unwrap(), case["text"], "{template}");
    }
}

#[test]
fn a_mistake_is_named_with_its_line() {
    for (template, line, says) in [
        ("a\n{% if %}", 2, "unexpected"),
        ("a\nb\n{% for m in messages %}", 3, "unexpected end of input"),
        ("a\n\n{{ messages | shout }}", 3, "shout"),
        ("\n{{ missing.name }}", 2, "undefined"),
        ("{{ messages[0].role }}\n{{ messages[0].content + 1 }}", 2, "+"),
        ("\n\n\n{{ raise_exception('Roles must alternate') }}", 4, "Roles must alternate"),
        ("\n{{ messages | tojson(sort_keys=true) }}", 2, "sort_keys"),
        ("\n{{ messages | tojson(ensure_ascii=true) }}", 2, "ensure_ascii"),
        ("\n{% include 'other' %}", 2, "other"),
    ] {
        let error = rendered(template, &[message("user", "hi")]).unwrap_err();
        let message = error.to_string();
        assert!(message.contains(&format!("line {line}:")) && message.contains(says), "{template:?}: {message}");
    }
}

#[test]
fn a_template_that_works_without_end_or_writes_without_end_is_stopped() {
    let long = "x".repeat(1 << 20);
    let loops = "{% for i in range(10000) %}".repeat(3) + "{{ i }}" + &"{% endfor %}".repeat(3);
    for (template, says) in [
        (loops.as_str(), "steps"),
        ("{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}", "recursion"),
        ("{{ 'x' * 1000000000 }}", "steps"),
        ("{% for i in range(9) %}{{ messages[0].content }}{% endfor %}", "bytes"),
    ] {
        let message = rendered(template, &[message("user", &long)]).unwrap_err().to_string();
        assert!(message.contains(says), "{template:?}: {message}");
    }
}

#[test]
fn ten_thousand_messages_are_not_too_much_work() {
    let tokenizer = crate::folders::byte_level();
    let messages: Vec<Message> = (0..10_000).map(|_| message("user", "hi")).collect();
    let ids = Chat::new(tokenizer.clone()).unwrap().render(&messages, true).unwrap();
    assert_eq!(ids.iter().filter(|&&id| id == 1).count(), 10_002);
}

#[test]
fn the_template_is_the_folders_file_or_the_one_named_default() {
    let text = |from: &str| format!("from {from}");
    let named = |names: &[&str]| -> Value {
        names.iter().map(|name| serde_json::json!({"name": name, "template": text(name)})).collect()
    };
    for (in_config, in_file, expected) in [
        (Value::Null, None, None),
        (text("config").into(), None, Some("from config")),
        (text("config").into(), Some("from file"), Some("from file")),
        (Value::Null, Some("from file"), Some("from file")),
        (named(&["tool_use", "default"]), None, Some("from default")),
        (named(&["tool_use"]), None, None),
    ] {
        let mut config = read_json(&fixtures().join("tokenizer/tokenizer_config.json"));
        config["chat_template"] = in_config;
        let tokenizer = std::fs::read_to_string(fixtures().join("tokenizer/tokenizer.json")).unwrap();
        let folder = folder(&[("tokenizer.json", &tokenizer), ("tokenizer_config.json", &config.to_string())]);
        if let Some(template) = in_file {
            std::fs::write(folder.path().join("chat_template.jinja"), template).unwrap();
        }
        let tokenizer = serve::text::Tokenizer::open(folder.path(), VOCAB).unwrap();
        assert_eq!(tokenizer.chat_template(), expected);
    }
}

#[test]
fn a_chat_without_a_template_is_an_error_that_says_so() {
    let tokenizer = changed(VOCAB, |_, config| config["chat_template"] = Value::Null).unwrap();
    let error = Chat::new(tokenizer).unwrap().render(&[message("user", "hi")], true).unwrap_err();
    assert!(matches!(error, TextError::NoTemplate), "{error}");
    assert!(error.to_string().contains("no chat template"), "{error}");
}
