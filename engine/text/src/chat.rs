//! Conversations to prompts.

use std::ops::Range;
use std::sync::Arc;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::error::TextError;
use super::marks::Mark;
use super::template::{Template, TemplateMessage};
use super::tokenizer::Tokenizer;

/// A model folder's way to write a conversation as a prompt.
#[derive(Debug)]
pub struct Chat {
    tokenizer: Arc<Tokenizer>,
    template: Option<Template>,
    special_tokens: Vec<String>,
}

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Message {
    /// Who speaks: `system`, `user`, `assistant` or what else the template knows.
    pub role: String,
    /// What is said. It is read from a string, or from a list of `{"type": "text", "text": ".."}`, whose texts are
    /// joined by line breaks.
    #[serde(deserialize_with = "text")]
    pub content: String,
}

impl Chat {
    /// Compiles the tokenizer's chat template. A tokenizer without one is no error until something is rendered.
    pub fn new(tokenizer: Arc<Tokenizer>) -> Result<Self, TextError> {
        let template = tokenizer.chat_template().map(|source| Template::compile(source, &tokenizer)).transpose()?;
        Ok(Self { template, special_tokens: tokenizer.special_tokens(), tokenizer })
    }

    /// The ids of a conversation, with the beginning of an answer behind it if `add_generation_prompt` says so.
    ///
    /// They are what Hugging Face's `apply_chat_template` gives, except that **special tokens inside a message are
    /// text**: only the template itself can end a turn or begin one.
    ///
    /// The template is bounded in work and output. Encoding takes time in proportion to the text, seconds for one of
    /// several megabytes, so it does not belong on a thread that others wait for.
    pub fn render(&self, messages: &[Message], add_generation_prompt: bool) -> Result<Vec<u32>, TextError> {
        let template = self.template.as_ref().ok_or(TextError::NoTemplate)?;
        let said = messages.iter().flat_map(|message| [message.role.as_str(), message.content.as_str()]);
        let written = self.tokenizer.chat_template().into_iter();
        let mark = Mark::unused(said.chain(written)).ok_or(TextError::NoMark)?;
        let broken = |text: &str| mark.break_tokens(text, &self.special_tokens);
        let messages = messages
            .iter()
            .map(|message| TemplateMessage { role: broken(&message.role), content: broken(&message.content) })
            .collect();
        self.encode(&template.render(messages, add_generation_prompt)?, mark)
    }

    /// The ids of a rendered conversation: the template's special tokens, and between them text.
    fn encode(&self, rendered: &str, mark: Mark) -> Result<Vec<u32>, TextError> {
        let encoding = self.tokenizer.encode_with_places(rendered)?;
        let places = encoding.get_ids().iter().zip(encoding.get_offsets());
        let found: Vec<_> = places
            .filter_map(|(&id, &(start, end))| Some((id, self.tokenizer.special_token(id)?, start..end)))
            .collect();
        let from_template = |token: &str, place: &Range<usize>| {
            // A tokenizer may find a token in another spelling of it, and take in the spaces around it.
            let is_spelled = rendered.get(place.clone()).is_some_and(|found| found.trim() == token.trim());
            is_spelled && rendered.get(place.end..).is_some_and(|rest| !mark.begins(rest))
        };
        if !mark.is_in(rendered) && found.iter().all(|(_, token, place)| from_template(token, place)) {
            return Ok(encoding.get_ids().to_vec());
        }

        let text =
            |place: Range<usize>| self.tokenizer.encode_as_text(&mark.remove(rendered.get(place).unwrap_or_default()));
        let mut ids = Vec::with_capacity(encoding.len());
        let mut done = 0;
        for (id, token, place) in found {
            if from_template(token, &place) {
                ids.extend(text(done..place.start)?);
                ids.push(id);
                done = place.end;
            }
        }
        ids.extend(text(done..rendered.len())?);
        Ok(ids)
    }
}

/// A message's content as one text.
fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::String(text) => Ok(text),
        Value::Array(parts) => {
            let texts: Result<Vec<&str>, _> = parts.iter().map(part).collect();
            Ok(texts.map_err(D::Error::custom)?.join("\n"))
        }
        _ => Err(D::Error::custom("a message's `content` must be a string or a list of text parts")),
    }
}

fn part(part: &Value) -> Result<&str, String> {
    match (part["type"].as_str(), part["text"].as_str()) {
        (Some("text"), Some(text)) => Ok(text),
        (Some("text"), None) => Err("a text part of a message's `content` needs a string `text`".to_owned()),
        (Some(other), _) => Err(format!("a message's `content` can hold parts of type `text` only, got `{other}`")),
        (None, _) => Err("each part of a message's `content` must be {\"type\": \"text\", \"text\": ..}".to_owned()),
    }
}
