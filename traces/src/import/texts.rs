//! Data sets of texts: ShareGPT, Alpaca and ArXiv-Summarization, as JSON lists or JSON Lines.

use std::io::BufRead;
use std::path::Path;

use serde_json::Value;

use crate::error::{Place, TracesError};
use crate::import::collector::{Collector, Record};
use crate::import::fields::{self, Fault, Miss};
use crate::import::json_records::JsonRecords;
use crate::import::time_unit::Timestamp;
use crate::import::tokens::TokenCounter;

/// Texts are counted together, so that all cores have work: at most so many records, and about so many bytes.
const BATCH_RECORDS: usize = 256;
const BATCH_BYTES: usize = 4 << 20;

/// What a request is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Texts {
    prompt: String,
    output: String,
}

/// Reads a data set whose records `parse` understands.
pub(super) fn read(
    path: &Path,
    reader: impl BufRead,
    parse: fn(&[u8]) -> Result<Texts, Miss>,
    counter: &TokenCounter,
    collector: &mut Collector,
) -> Result<(), TracesError> {
    let io_error = |source| TracesError::Io { path: path.into(), source };
    let mut records = JsonRecords::new(reader).map_err(io_error)?;
    if let Some(problem) = records.fault() {
        return Err(TracesError::Import { path: path.into(), problem });
    }
    let mut batch = Vec::new();
    let mut bytes = 0;
    while let Some((place, cut)) = records.next().map_err(io_error)? {
        let texts = match cut {
            Ok(text) => parse(text),
            Err(got) => Err(Fault::new("", "must be complete", got).into()),
        };
        bytes += texts.as_ref().map_or(0, |texts| texts.prompt.len() + texts.output.len());
        batch.push((place, texts));
        if batch.len() == BATCH_RECORDS || bytes >= BATCH_BYTES {
            count(&mut batch, counter, collector)?;
            bytes = 0;
        }
        if collector.is_full() {
            return Ok(());
        }
    }
    count(&mut batch, counter, collector)
}

/// Counts a batch's tokens and hands it over in order, leaving it empty.
fn count(
    batch: &mut Vec<(Place, Result<Texts, Miss>)>,
    counter: &TokenCounter,
    collector: &mut Collector,
) -> Result<(), TracesError> {
    let texts = batch.iter().filter_map(|(_, texts)| texts.as_ref().ok());
    let counts = counter.count(texts.flat_map(|texts| [texts.prompt.as_str(), texts.output.as_str()]).collect())?;
    let mut counts = counts.chunks_exact(2);
    for (place, texts) in batch.drain(..) {
        if collector.is_full() {
            break;
        }
        let record = texts.map(|_| {
            let pair = counts.next().expect("two counts per record with texts");
            Record { prompt_tokens: pair[0], output_tokens: pair[1], time: Timestamp::whole(0) }
        });
        collector.take(place, record);
    }
    Ok(())
}

/// An entry that begins with a human's turn and the model's answer to it.
///
/// Later turns are not looked at: the paper takes one request per entry, and leaving out the entries that begin in the
/// middle of a conversation gives its number of requests.
pub(super) fn sharegpt(text: &[u8]) -> Result<Texts, Miss> {
    let entry = fields::object(text)?;
    let turns = fields::list(entry.get("conversations"), "conversations")?;
    let mut said = Vec::with_capacity(2);
    for turn in turns.iter().take(2) {
        let Value::Object(turn) = turn else {
            let got = fields::describe(Some(turn));
            return Err(Fault::new("conversations", "must hold objects with `from` and `value`", got).into());
        };
        let from = fields::text(turn.get("from"), "conversations.from")?;
        said.push((from, fields::text(turn.get("value"), "conversations.value")?));
    }
    match said[..] {
        [("human" | "user", prompt), ("gpt" | "assistant", output)] => {
            Ok(Texts { prompt: prompt.into(), output: output.into() })
        }
        _ => Err(Miss::LeftOut("the conversation does not begin with a human's turn and the model's answer")),
    }
}

/// An instruction, with its input on the next line if there is one.
pub(super) fn alpaca(text: &[u8]) -> Result<Texts, Miss> {
    let entry = fields::object(text)?;
    let mut prompt = fields::text(entry.get("instruction"), "instruction")?.to_owned();
    if let Some(input) = entry.get("input").filter(|input| !input.is_null()) {
        let input = fields::text(Some(input), "input")?;
        if !input.is_empty() {
            prompt.push('\n');
            prompt.push_str(input);
        }
    }
    Ok(Texts { prompt, output: fields::text(entry.get("output"), "output")?.into() })
}

/// An article and its abstract; in the original release both are lists of sentences, the abstract's in `<S>` tags.
pub(super) fn arxiv(text: &[u8]) -> Result<Texts, Miss> {
    let entry = fields::object(text)?;
    let either = |names: [&'static str; 2]| {
        let name = if entry.contains_key(names[0]) || !entry.contains_key(names[1]) { names[0] } else { names[1] };
        sentences(entry.get(name), name)
    };
    let prompt = either(["article", "article_text"])?;
    let output = either(["abstract", "abstract_text"])?.replace("<S>", "").replace("</S>", "");
    Ok(Texts { prompt, output })
}

/// A text, or a list of texts as lines.
fn sentences(value: Option<&Value>, field: &'static str) -> Result<String, Fault> {
    const MUST: &str = "must be text or a list of texts";
    match value {
        Some(Value::String(text)) => Ok(text.clone()),
        Some(Value::Array(sentences)) => {
            let texts: Option<Vec<&str>> = sentences.iter().map(Value::as_str).collect();
            texts.map(|texts| texts.join("\n")).ok_or_else(|| Fault::new(field, MUST, "a list of something else"))
        }
        other => Err(Fault::new(field, MUST, fields::describe(other))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(parse: fn(&[u8]) -> Result<Texts, Miss>, text: &str, prompt: &str, output: &str) {
        assert_eq!(parse(text.as_bytes()), Ok(Texts { prompt: prompt.into(), output: output.into() }), "{text}");
    }

    #[test]
    fn a_conversation_gives_its_first_pair_and_only_from_its_beginning() {
        let entry = |turns: &[(&str, &str)]| {
            let turns: Vec<_> =
                turns.iter().map(|(from, value)| serde_json::json!({"from": from, "value": value})).collect();
            serde_json::json!({"id": "x", "conversations": turns}).to_string()
        };
        check(sharegpt, &entry(&[("human", "a"), ("gpt", "b"), ("human", "c"), ("gpt", "d")]), "a", "b");
        check(sharegpt, &entry(&[("user", "a"), ("assistant", "b")]), "a", "b");
        for turns in [
            &[("gpt", "a"), ("human", "b"), ("gpt", "c")][..],
            &[("human", "a")],
            &[("human", "a"), ("human", "b")],
            &[],
        ] {
            assert!(matches!(sharegpt(entry(turns).as_bytes()), Err(Miss::LeftOut(_))), "{turns:?}");
        }
    }

    #[test]
    fn an_instruction_has_its_input_on_the_next_line() {
        check(alpaca, r#"{"instruction": "i", "input": "", "output": "o"}"#, "i", "o");
        check(alpaca, r#"{"instruction": "i", "input": "n", "output": "o"}"#, "i\nn", "o");
        check(alpaca, r#"{"instruction": "i", "output": "o"}"#, "i", "o");
    }

    #[test]
    fn an_article_is_text_or_sentences() {
        check(arxiv, r#"{"article": "a b", "abstract": "c"}"#, "a b", "c");
        check(arxiv, r#"{"article_text": ["a", "b"], "abstract_text": ["<S>c</S>"]}"#, "a\nb", "c");
    }

    #[test]
    fn a_fault_names_the_field() {
        let check = |parse: fn(&[u8]) -> Result<Texts, Miss>, text: &str, field, must, got: &str| {
            assert_eq!(parse(text.as_bytes()), Err(Fault::new(field, must, got).into()), "{text}");
        };
        check(sharegpt, "[]", "", "must be a JSON object", "a list");
        check(sharegpt, r#"{"conversations": 5}"#, "conversations", "must be a list", "5");
        check(sharegpt, r#"{"conversations": [{"from": "human"}]}"#, "conversations.value", "must be text", "nothing");
        check(alpaca, r#"{"instruction": "i", "output": null}"#, "output", "must be text", "null");
        check(arxiv, r#"{"abstract": "c"}"#, "article", "must be text or a list of texts", "nothing");
        check(
            arxiv,
            r#"{"article_text": [1], "abstract": ""}"#,
            "article_text",
            "must be text or a list of texts",
            "a list of something else",
        );
        assert!(matches!(alpaca(b"{\"a\""), Err(Miss::Malformed(Fault { must: "must be valid JSON", .. }))));
    }
}
