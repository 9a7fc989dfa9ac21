//! A value of a swept field.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Number, Value};

/// Null, true or false, a number or a text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Value", into = "Value")]
pub enum Scalar {
    /// The field is left out.
    Null,
    /// True or false.
    Bool(bool),
    /// A number, as written.
    Number(Number),
    /// Anything else.
    Text(String),
}

impl Scalar {
    /// As a number, if it is one.
    pub fn number(&self) -> Option<f64> {
        if let Self::Number(number) = self { number.as_f64() } else { None }
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Bool(yes) => yes.fmt(f),
            Self::Number(number) => number.fmt(f),
            Self::Text(text) => f.write_str(text),
        }
    }
}

impl TryFrom<Value> for Scalar {
    type Error = &'static str;

    fn try_from(value: Value) -> Result<Self, Self::Error> {
        match value {
            Value::Null => Ok(Self::Null),
            Value::Bool(yes) => Ok(Self::Bool(yes)),
            Value::Number(number) => Ok(Self::Number(number)),
            Value::String(text) => Ok(Self::Text(text)),
            Value::Array(_) | Value::Object(_) => {
                Err("a swept value must be a scalar: sweep the fields inside by their paths")
            }
        }
    }
}

impl From<Scalar> for Value {
    fn from(scalar: Scalar) -> Self {
        match scalar {
            Scalar::Null => Self::Null,
            Scalar::Bool(yes) => Self::Bool(yes),
            Scalar::Number(number) => Self::Number(number),
            Scalar::Text(text) => Self::String(text),
        }
    }
}

impl From<u32> for Scalar {
    fn from(number: u32) -> Self {
        Self::Number(number.into())
    }
}
