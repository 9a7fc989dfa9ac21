//! What clients send: everything may be missing or null, and what we do not know is ignored.

use std::fmt;

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::text::Message;

/// A body of `/v1/completions` or `/v1/chat/completions`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Body {
    /// The model's name.
    pub(super) model: Option<String>,
    /// Completions: what is to be continued.
    pub(super) prompt: Option<Prompts>,
    /// Chat: what was said.
    pub(super) messages: Option<Vec<Message>>,
    /// Output tokens at most.
    pub(super) max_tokens: Option<u32>,
    /// The same, by its newer name.
    pub(super) max_completion_tokens: Option<u32>,
    /// Output tokens at least.
    pub(super) min_tokens: Option<u32>,
    /// End tokens end nothing.
    pub(super) ignore_eos: Option<bool>,
    /// 0 takes the most probable token.
    pub(super) temperature: Option<f32>,
    /// The most probable tokens that together reach this probability.
    pub(super) top_p: Option<f32>,
    /// The k most probable tokens; 0 and -1 take all.
    pub(super) top_k: Option<i64>,
    /// The same seed, the same draws.
    pub(super) seed: Option<i64>,
    /// Text that ends the output, and is not part of it.
    pub(super) stop: Option<Stops>,
    /// Completions: how many of the most probable tokens are told. Chat: whether log-probabilities are.
    pub(super) logprobs: Option<FlagOrCount>,
    /// Chat: how many of the most probable tokens are told.
    pub(super) top_logprobs: Option<u32>,
    /// Completions: the answer begins with the prompt.
    pub(super) echo: Option<bool>,
    /// Answers to each prompt.
    pub(super) n: Option<usize>,
    /// Events as tokens are made.
    pub(super) stream: Option<bool>,
    /// What the events carry.
    pub(super) stream_options: Option<StreamOptions>,
    /// When tokens leave the loop.
    pub(super) exit: Option<Exit>,
    /// No token leaves the loop early.
    pub(super) full_depth: Option<bool>,
    /// Only requests of the same salt share pages of the prefix cache.
    pub(super) cache_salt: Option<String>,
    /// Refused unless it asks for nothing.
    pub(super) best_of: Option<usize>,
    /// Refused unless it asks for nothing.
    pub(super) repetition_penalty: Option<f32>,
    /// Refused unless it asks for nothing.
    pub(super) frequency_penalty: Option<f32>,
    /// Refused unless it asks for nothing.
    pub(super) presence_penalty: Option<f32>,
}

/// What a stream's events carry.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct StreamOptions {
    /// The usage comes as a last event.
    pub(super) include_usage: Option<bool>,
    /// Every event has the usage so far.
    pub(super) continuous_usage_stats: Option<bool>,
}

/// When tokens leave the loop, in place of what the server's settings say.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Exit {
    /// In the unit of the model's gate.
    pub(super) threshold: Option<f32>,
    /// No token leaves before this loop.
    pub(super) min_depth: Option<u8>,
}

/// A string or several.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Stops {
    /// One.
    One(String),
    /// Several.
    Several(Vec<String>),
}

/// What `logprobs` means depends on the path.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum FlagOrCount {
    /// Chat's.
    Flag(bool),
    /// Completions'.
    Count(u32),
}

/// What is to be continued: a string, ids, or a list of either.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Prompts(pub(super) Vec<Prompt>);

/// One prompt.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Prompt {
    /// As text.
    Text(String),
    /// As token ids.
    Ids(Vec<u32>),
}

impl<'de> Deserialize<'de> for Prompts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PromptsVisitor)
    }
}

struct PromptsVisitor;

impl<'de> Visitor<'de> for PromptsVisitor {
    type Value = Prompts;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string, a list of token ids, or a list of strings or of lists of token ids")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Prompts, E> {
        Ok(Prompts(vec![Prompt::Text(text.to_owned())]))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Prompts, A::Error> {
        let (mut ids, mut prompts) = (Vec::new(), Vec::new());
        while let Some(element) = list.next_element()? {
            match element {
                Element::Id(id) => ids.push(id),
                Element::Prompt(prompt) => prompts.push(prompt),
            }
        }
        match (ids.is_empty(), prompts.is_empty()) {
            (false, false) => Err(A::Error::custom("a list has either token ids or prompts, not both")),
            (false, true) => Ok(Prompts(vec![Prompt::Ids(ids)])),
            (true, _) => Ok(Prompts(prompts)),
        }
    }
}

/// An entry of a list of prompts, or of the one prompt that is a list.
enum Element {
    Id(u32),
    Prompt(Prompt),
}

impl<'de> Deserialize<'de> for Element {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ElementVisitor)
    }
}

struct ElementVisitor;

impl<'de> Visitor<'de> for ElementVisitor {
    type Value = Element;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a token id, a string or a list of token ids")
    }

    fn visit_u64<E: Error>(self, id: u64) -> Result<Element, E> {
        let wrong = |_| E::custom(format_args!("a token id is a whole number below 2^32, got {id}"));
        u32::try_from(id).map(Element::Id).map_err(wrong)
    }

    fn visit_i64<E: Error>(self, id: i64) -> Result<Element, E> {
        Err(E::custom(format_args!("a token id is a whole number below 2^32, got {id}")))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Element, E> {
        Ok(Element::Prompt(Prompt::Text(text.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Element, A::Error> {
        let mut ids = Vec::new();
        while let Some(id) = list.next_element()? {
            ids.push(id);
        }
        Ok(Element::Prompt(Prompt::Ids(ids)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_is_text_or_ids_or_a_list_of_either() {
        let text = |text: &str| Prompt::Text(text.into());
        let ids = |ids: &[u32]| Prompt::Ids(ids.into());
        for (json, expected) in [
            ("\"a\"", vec![text("a")]),
            ("[1, 2]", vec![ids(&[1, 2])]),
            ("[\"a\", \"b\"]", vec![text("a"), text("b")]),
            ("[[1], [2, 3]]", vec![ids(&[1]), ids(&[2, 3])]),
            ("[]", vec![]),
            ("[[]]", vec![ids(&[])]),
        ] {
            assert_eq!(serde_json::from_str::<Prompts>(json).unwrap().0, expected, "{json}");
        }
        for json in ["7", "{}", "[1, \"a\"]", "[-1]", "[4294967296]", "[[1, \"a\"]]", "[1.5]"] {
            assert!(serde_json::from_str::<Prompts>(json).is_err(), "{json}");
        }
    }

    #[test]
    fn nulls_and_unknown_fields_ask_for_nothing() {
        let body: Body = serde_json::from_str(
            "{\"model\": null, \"stop\": null, \"logprobs\": null, \"n\": null, \"stream\": null, \"tools\": [{}],
              \"stream_options\": null, \"exit\": {\"threshold\": null, \"other\": 1}}",
        )
        .unwrap();
        assert!(body.model.is_none() && body.stop.is_none() && body.logprobs.is_none() && body.n.is_none());
        assert!(body.stream.is_none() && body.exit.unwrap().threshold.is_none());
    }
}
