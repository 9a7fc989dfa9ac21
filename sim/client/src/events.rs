//! Server-sent events of completions and chats: bytes in, tokens with their times out.

use std::fmt;

use engine::units::{Depth, Nanos};
use serde::de::{Error, IgnoredAny, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::answer::{Answer, FailureKind};

/// A line that is longer than this is no event.
const LINE_MAX: usize = 1 << 24;

/// A stream, as far as it has come.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    /// The bytes of a line whose end has not come.
    rest: Vec<u8>,
    events: Vec<(Nanos, What)>,
    usage: Option<Usage>,
    finished: bool,
    done: bool,
}

/// What an event brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    /// Text, or thoughts.
    Text,
    /// A token whose text is held back, or none.
    Empty,
    /// The same, with the reason why the answer ended.
    Last,
}

/// What a stream's bytes say is wrong.
pub(crate) type Wrong = (FailureKind, String);

#[derive(Deserialize)]
struct Event {
    #[serde(default)]
    choices: Option<Vec<Choice>>,
    #[serde(default)]
    usage: Option<Usage>,
    #[serde(default)]
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Choice {
    #[serde(default)]
    text: Option<HasText>,
    #[serde(default)]
    delta: Option<Delta>,
    #[serde(default)]
    finish_reason: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct Delta {
    #[serde(default)]
    role: Option<IgnoredAny>,
    #[serde(default)]
    content: Option<HasText>,
    #[serde(default)]
    reasoning_content: Option<HasText>,
    #[serde(default)]
    reasoning: Option<HasText>,
}

#[derive(Clone, Debug, Deserialize)]
struct Usage {
    #[serde(default)]
    prompt_tokens: Option<u32>,
    #[serde(default)]
    completion_tokens: Option<u32>,
    #[serde(default)]
    exit_depths: Option<Vec<Depth>>,
}

impl Stream {
    /// Takes bytes that were there at `now`.
    pub(crate) fn push(&mut self, bytes: &[u8], now: Nanos) -> Result<(), Wrong> {
        let mut bytes = bytes;
        while let Some(end) = bytes.iter().position(|&byte| byte == b'\n') {
            let (line, behind) = bytes.split_at(end);
            bytes = &behind[1..];
            if self.rest.is_empty() {
                self.line(line, now)?;
            } else {
                self.rest.extend_from_slice(line);
                let line = std::mem::take(&mut self.rest);
                self.line(&line, now)?;
            }
        }
        self.rest.extend_from_slice(bytes);
        match self.rest.len() > LINE_MAX {
            true => Err((FailureKind::Malformed, "a line of the stream has no end".into())),
            false => Ok(()),
        }
    }

    /// Events with tokens so far.
    pub(crate) fn tokens(&self) -> u32 {
        self.events.len() as u32
    }

    /// The stream has ended: what it says as a whole.
    pub(crate) fn end(self) -> Result<Answer, Wrong> {
        if !self.done && !self.finished {
            return Err((FailureKind::Broken, "the stream ended without [DONE] and without a finish_reason".into()));
        }
        let counted = self.usage.as_ref().and_then(|usage| usage.completion_tokens);
        let tokens = self.times(counted);
        let (Some(&first), Some(&last)) = (tokens.first(), tokens.last()) else {
            return Err((FailureKind::Empty, "the answer ended before its first token".into()));
        };
        let output_tokens = counted.unwrap_or(tokens.len() as u32).max(1);
        let tells_apart = tokens.len() == output_tokens as usize;
        let depths = self.usage.as_ref().and_then(|usage| usage.exit_depths.clone()).unwrap_or_default();
        Ok(Answer {
            output_tokens,
            prompt_tokens: self.usage.as_ref().and_then(|usage| usage.prompt_tokens),
            tokens: if tells_apart { tokens } else { Vec::new() },
            first,
            last,
            depths,
            counted: counted.is_some(),
        })
    }

    /// The times of the events that carry tokens. An event without text may be a token whose text is held back, or none: the
    /// server's count decides which reading is right, and where it does not count, only an empty end is none.
    fn times(&self, counted: Option<u32>) -> Vec<Nanos> {
        let all = || self.events.iter().copied();
        let times = |events: &mut dyn Iterator<Item = (Nanos, What)>| events.map(|(at, _)| at).collect::<Vec<_>>();
        let readings = [
            times(&mut all()),
            times(&mut all().filter(|(_, what)| *what != What::Last)),
            times(&mut all().filter(|(_, what)| *what == What::Text)),
        ];
        let right = |reading: &&Vec<Nanos>| counted.is_some_and(|count| reading.len() == count as usize);
        let fallback = if readings[1].is_empty() { &readings[0] } else { &readings[1] };
        readings.iter().find(right).unwrap_or(fallback).clone()
    }

    fn line(&mut self, line: &[u8], now: Nanos) -> Result<(), Wrong> {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let Some(data) = line.strip_prefix(b"data:") else { return Ok(()) };
        let data = data.trim_ascii();
        if data == b"[DONE]" {
            self.done = true;
            return Ok(());
        }
        let event: Event = serde_json::from_slice(data).map_err(|error| {
            let shown: String = String::from_utf8_lossy(data).chars().take(200).collect();
            (FailureKind::Malformed, format!("an event cannot be read: {error}: {shown}"))
        })?;
        if let Some(error) = event.error {
            return Err((FailureKind::Told, message(&error)));
        }
        if let Some(choice) = event.choices.into_iter().flatten().next() {
            self.choice(&choice, now);
        }
        if event.usage.is_some() {
            self.usage = event.usage;
        }
        Ok(())
    }

    fn choice(&mut self, choice: &Choice, now: Nanos) {
        let is_last = choice.finish_reason.is_some();
        let delta = choice.delta.as_ref();
        let texts = [
            choice.text.as_ref(),
            delta.and_then(|delta| delta.content.as_ref()),
            delta.and_then(|delta| delta.reasoning_content.as_ref()),
            delta.and_then(|delta| delta.reasoning.as_ref()),
        ];
        let has_text = texts.into_iter().flatten().any(|HasText(has)| *has);
        self.finished |= is_last;
        // The event that says who speaks is no token.
        if !has_text && !is_last && delta.is_some_and(|delta| delta.role.is_some()) {
            return;
        }
        let what = match (has_text, is_last) {
            (true, _) => What::Text,
            (false, true) => What::Last,
            (false, false) => What::Empty,
        };
        self.events.push((now, what));
    }
}

/// What an error object says.
pub(crate) fn message(error: &Value) -> String {
    let said = error.get("error").unwrap_or(error);
    let text = said.get("message").unwrap_or(said);
    text.as_str().map_or_else(|| text.to_string(), str::to_owned)
}

/// Whether a string has a character; the string itself is nobody's business.
struct HasText(bool);

impl<'de> Deserialize<'de> for HasText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(HasTextVisitor)
    }
}

struct HasTextVisitor;

impl Visitor<'_> for HasTextVisitor {
    type Value = HasText;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("text")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<HasText, E> {
        Ok(HasText(!text.is_empty()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(events: &[&str]) -> Result<Answer, Wrong> {
        let mut stream = Stream::default();
        for (at, event) in (1..).zip(events) {
            stream.push(format!("data: {event}\n\n").as_bytes(), Nanos(at))?;
        }
        stream.end()
    }

    fn times(events: &[&str]) -> (u32, Vec<u64>) {
        let answer = stream(events).unwrap();
        (answer.output_tokens, answer.tokens.iter().map(|at| at.0).collect())
    }

    const A: &str = r#"{"choices":[{"text":"a","finish_reason":null}],"usage":null}"#;
    const HELD: &str = r#"{"choices":[{"text":""}]}"#;
    const END: &str = r#"{"choices":[{"text":"","finish_reason":"length"}]}"#;
    const USAGE_2: &str = r#"{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":2}}"#;

    #[test]
    fn the_servers_count_says_which_events_are_tokens() {
        assert_eq!(times(&[A, END, USAGE_2, "[DONE]"]), (2, vec![1, 2]), "the last token's text is held back");
        assert_eq!(times(&[A, A, END, USAGE_2, "[DONE]"]), (2, vec![1, 2]), "the end is an event of its own");
        assert_eq!(times(&[HELD, A, A, END, USAGE_2, "[DONE]"]), (2, vec![2, 3]), "so is the beginning");
        assert_eq!(times(&[A, END, "[DONE]"]), (1, vec![1]), "nobody counts");
        let together = stream(&[A, USAGE_2, "[DONE]"]).unwrap();
        assert_eq!((together.output_tokens, together.tokens.len()), (2, 0), "one event brought two tokens");
    }

    #[test]
    fn chats_begin_with_a_role_and_may_think() {
        let delta = |fields: &str| format!(r#"{{"choices":[{{"index":0,"delta":{{{fields}}}}}]}}"#);
        let role = delta(r#""role":"assistant","content":"""#);
        let thought = delta(r#""reasoning_content":"hm""#);
        let said = delta(r#""content":"a""#);
        assert_eq!(times(&[&role, &thought, &said, "[DONE]"]), (2, vec![2, 3]));
    }

    #[test]
    fn lines_come_in_any_pieces_and_comments_are_none() {
        let text = format!(": hello\r\ndata:{A}\r\n\r\nevent: x\ndata: {A}\n\ndata: [DONE]\n\n");
        let mut stream = Stream::default();
        for (at, byte) in text.bytes().enumerate() {
            stream.push(&[byte], Nanos(at as u64)).unwrap();
        }
        assert_eq!(stream.end().unwrap().output_tokens, 2);
    }

    #[test]
    fn failures_have_kinds() {
        let kind = |events: &[&str]| stream(events).unwrap_err().0;
        assert_eq!(kind(&[A]), FailureKind::Broken);
        assert_eq!(kind(&["[DONE]"]), FailureKind::Empty);
        assert_eq!(kind(&["{"]), FailureKind::Malformed);
        let told = stream(&[A, r#"{"error":{"message":"it broke"}}"#]).unwrap_err();
        assert_eq!(told, (FailureKind::Told, "it broke".into()));
    }

    #[test]
    fn depths_come_with_the_usage() {
        let usage = r#"{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":1,"exit_depths":[4]}}"#;
        assert_eq!(stream(&[A, usage, "[DONE]"]).unwrap().depths, [Depth(4)]);
    }
}
