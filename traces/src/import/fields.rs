//! Fields of a JSON record, with words for what is wrong.

use serde_json::{Map, Value};

use crate::numbers::{self, MAX_TOKENS};

/// Why a record becomes no request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Miss {
    /// It is well-formed, but holds no request.
    LeftOut(&'static str),
    /// It cannot be understood.
    Malformed(Fault),
}

/// What is wrong with a field; with the record as a whole if the field is empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) field: &'static str,
    pub(super) must: &'static str,
    pub(super) got: String,
}

impl Fault {
    pub(super) fn new(field: &'static str, must: &'static str, got: impl Into<String>) -> Self {
        Self { field, must, got: got.into() }
    }
}

impl From<Fault> for Miss {
    fn from(fault: Fault) -> Self {
        Self::Malformed(fault)
    }
}

pub(super) const MUST_BE_TOKENS: &str = "must be a whole number of tokens";

/// A record as an object.
pub(super) fn object(text: &[u8]) -> Result<Map<String, Value>, Fault> {
    match serde_json::from_slice(text) {
        Ok(Value::Object(fields)) => Ok(fields),
        Ok(other) => Err(Fault::new("", "must be a JSON object", describe(Some(&other)))),
        Err(error) => Err(Fault::new("", "must be valid JSON", format!("an error: {error}"))),
    }
}

/// A text.
pub(super) fn text<'a>(value: Option<&'a Value>, field: &'static str) -> Result<&'a str, Fault> {
    value.and_then(Value::as_str).ok_or_else(|| Fault::new(field, "must be text", describe(value)))
}

/// A list.
pub(super) fn list<'a>(value: Option<&'a Value>, field: &'static str) -> Result<&'a [Value], Fault> {
    let list = value.and_then(Value::as_array).map(Vec::as_slice);
    list.ok_or_else(|| Fault::new(field, "must be a list", describe(value)))
}

/// A number of tokens, which may be 0.
pub(super) fn tokens(value: Option<&Value>, field: &'static str) -> Result<u64, Fault> {
    let tokens = value.and_then(whole).filter(|tokens| *tokens <= MAX_TOKENS.into());
    tokens.ok_or_else(|| Fault::new(field, MUST_BE_TOKENS, describe(value)))
}

/// A whole number from 0, written as `655` or as `655.0`.
pub(super) fn whole(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| u64::try_from(numbers::whole(value.as_f64()?)?).ok())
}

/// A value as an error names it; long ones are cut.
pub(super) fn describe(value: Option<&Value>) -> String {
    match value {
        None => "nothing".into(),
        Some(Value::Object(_)) => "an object".into(),
        Some(Value::Array(_)) => "a list".into(),
        Some(Value::String(text)) => format!("the text `{}`", shorten(text)),
        Some(other) => other.to_string(),
    }
}

/// The first 40 characters of a text.
pub(super) fn shorten(text: &str) -> String {
    match text.char_indices().nth(40) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.into(),
    }
}
