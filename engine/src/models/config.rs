//! A model folder's `config.json`, field by field: every error names the file, the field and what it must be.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};
use thiserror::Error;

use super::initial_state::InitialState;
use super::rope::RopeScaling;
use crate::architecture::Architecture;
use crate::units::Depth;

/// Why a folder's JSON file cannot be used.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "the messages say what the fields are")]
pub enum ConfigError {
    /// It could not be read.
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: std::io::Error },
    /// It is no JSON object.
    #[error("{}: not a JSON object: {reason}", path.display())]
    Json { path: PathBuf, reason: String },
    /// A field that is missing, of another type, or asks for what cannot be done.
    #[error("{}: `{field}`: {reason}", path.display())]
    Field { path: PathBuf, field: String, reason: String },
}

/// What a `config.json` says.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelConfig {
    /// Its shape.
    pub architecture: Architecture,
    /// Positions that it was made for, if the file says.
    pub context_tokens: Option<u64>,
    /// Tokens that end a sequence.
    pub end_tokens: Vec<u32>,
    /// The exit threshold that it suggests, in its gate's own unit ([`super::gate::GateSpec::threshold`]).
    pub exit_threshold: f32,
    /// Where its loop starts unless a run says otherwise.
    pub initial_state: InitialState,
}

/// A JSON object from a file.
#[derive(Clone, Debug)]
pub struct Config {
    path: PathBuf,
    fields: Map<String, Value>,
}

impl Config {
    /// Reads a file's text; `path` is only named in errors.
    ///
    /// # Errors
    /// It is no JSON object.
    pub fn parse(path: &Path, text: &[u8]) -> Result<Self, ConfigError> {
        let json = |reason| ConfigError::Json { path: path.into(), reason };
        match serde_json::from_slice(text).map_err(|error| json(error.to_string()))? {
            Value::Object(fields) => Ok(Self { path: path.into(), fields }),
            _ => Err(json("it must be in braces".into())),
        }
    }

    /// What is wrong with a field.
    pub fn error(&self, field: &str, reason: String) -> ConfigError {
        ConfigError::Field { path: self.path.clone(), field: field.into(), reason }
    }

    /// A field, unless it is missing or null.
    fn get(&self, field: &str) -> Option<&Value> {
        let mut path = field.split('.');
        let first = self.fields.get(path.next()?)?;
        path.try_fold(first, |value, key| value.get(key)).filter(|value| !value.is_null())
    }

    /// True if it is there, as null.
    pub fn is_null(&self, field: &str) -> bool {
        self.fields.get(field).is_some_and(Value::is_null)
    }

    fn typed<'a, T>(
        &'a self,
        field: &str,
        what: &str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, ConfigError> {
        let Some(value) = self.get(field) else { return Ok(None) };
        read(value).map(Some).ok_or_else(|| self.error(field, format!("must be {what}, got {value}")))
    }

    /// A string.
    ///
    /// # Errors
    /// It is none.
    pub fn text(&self, field: &str) -> Result<Option<String>, ConfigError> {
        self.typed(field, "a string", |value| value.as_str().map(str::to_owned))
    }

    /// A finite number.
    ///
    /// # Errors
    /// It is none.
    pub fn real(&self, field: &str) -> Result<Option<f64>, ConfigError> {
        self.typed(field, "a number", Value::as_f64)
    }

    /// True or false.
    ///
    /// # Errors
    /// It is neither.
    pub fn flag(&self, field: &str) -> Result<Option<bool>, ConfigError> {
        self.typed(field, "true or false", Value::as_bool)
    }

    /// A size that may be missing.
    ///
    /// # Errors
    /// It is no whole number from 0 on.
    pub fn optional_size(&self, field: &str) -> Result<Option<u64>, ConfigError> {
        self.typed(field, "a whole number", Value::as_u64)
    }

    /// A size.
    ///
    /// # Errors
    /// It is missing, or no whole number from 0 on.
    pub fn size(&self, field: &str) -> Result<u64, ConfigError> {
        let missing = || self.error(field, "is missing: the model's size depends on it".into());
        self.optional_size(field)?.ok_or_else(missing)
    }

    /// Loops at full depth.
    ///
    /// # Errors
    /// There are none, or too many.
    pub fn depth(&self, field: &str) -> Result<Option<Depth>, ConfigError> {
        let loops = |value: &Value| value.as_u64().and_then(|n| u8::try_from(n).ok());
        let within = |loops: &u8| (1..=Architecture::LOOPS_MAX).contains(loops);
        let what = format!("a number of loops from 1 to {}", Architecture::LOOPS_MAX);
        self.typed(field, &what, |value| loops(value).filter(within).map(Depth))
    }

    /// Token ids: one, a list, or none.
    ///
    /// # Errors
    /// It is none of these.
    pub fn ids(&self, field: &str) -> Result<Vec<u32>, ConfigError> {
        let id = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
        let ids = |value: &Value| match value {
            Value::Array(ids) => ids.iter().map(id).collect(),
            value => id(value).map(|id| vec![id]),
        };
        Ok(self.typed(field, "a token id or a list of them", ids)?.unwrap_or_default())
    }

    /// Refuses a text other than those that we can do.
    ///
    /// # Errors
    /// It is another.
    pub fn only(&self, field: &str, known: &[&str]) -> Result<(), ConfigError> {
        match self.text(field)? {
            Some(text) if !known.contains(&text.as_str()) => {
                Err(self
                    .error(field, format!("must be {}, got `{text}`: nothing else is supported", known.join(" or "))))
            }
            _ => Ok(()),
        }
    }

    /// Refuses a list with any other element.
    ///
    /// # Errors
    /// It has one.
    pub fn only_in_list(&self, field: &str, known: &str) -> Result<(), ConfigError> {
        let list = self.typed(field, "a list", Value::as_array)?;
        match list.and_then(|list| list.iter().find(|value| value.as_str() != Some(known))) {
            Some(other) => {
                Err(self.error(field, format!("must hold `{known}` alone, got {other}: nothing else is supported")))
            }
            None => Ok(()),
        }
    }

    /// Refuses what we cannot do.
    ///
    /// # Errors
    /// It is on.
    pub fn must_be_off(&self, field: &str) -> Result<(), ConfigError> {
        match self.flag(field)? {
            Some(true) => Err(self.error(field, "must be false: it is not supported".into())),
            _ => Ok(()),
        }
    }

    /// Refuses what we cannot do.
    ///
    /// # Errors
    /// There is a value.
    pub fn must_be_null(&self, field: &str) -> Result<(), ConfigError> {
        match self.get(field) {
            Some(value) => Err(self.error(field, format!("must be null, got {value}: it is not supported"))),
            None => Ok(()),
        }
    }

    /// Refuses a number other than the one that we can do.
    ///
    /// # Errors
    /// It is another, by more than rounding.
    pub fn must_be_close(&self, field: &str, number: f64) -> Result<(), ConfigError> {
        match self.real(field)? {
            Some(found) if (found - number).abs() > 1e-4 * number => {
                Err(self.error(field, format!("must be {number}, got {found}: it is not supported")))
            }
            _ => Ok(()),
        }
    }

    /// The width of a head where the file does not say: the model's, shared out among heads.
    ///
    /// # Errors
    /// It cannot be shared out.
    pub fn split(&self, hidden: u64, heads: u64) -> Result<u64, ConfigError> {
        match hidden.checked_div(heads) {
            Some(dim) if dim * heads == hidden => Ok(dim),
            _ => {
                Err(self
                    .error("head_dim", format!("is missing, and {hidden} channels do not divide into {heads} heads")))
            }
        }
    }

    /// The base of RoPE's frequencies: under its own name, or in `rope_parameters`, where newer files keep it.
    ///
    /// # Errors
    /// It is no number.
    pub fn rope_theta(&self, field: &str) -> Result<Option<f64>, ConfigError> {
        Ok(self.real(field)?.or(self.real("rope_parameters.rope_theta")?))
    }

    /// What longer contexts make of RoPE.
    ///
    /// # Errors
    /// A kind that is not known, or one of its numbers is missing.
    pub fn rope_scaling(&self) -> Result<Option<RopeScaling>, ConfigError> {
        let of = if self.get("rope_parameters").is_some() { "rope_parameters" } else { "rope_scaling" };
        if self.get(of).is_none() {
            return Ok(None);
        }
        let text = |key: &str| self.text(&format!("{of}.{key}"));
        let real = |key: &str| self.real(&format!("{of}.{key}"));
        let need = |key: &str| {
            let missing = || self.error(&format!("{of}.{key}"), "is missing".into());
            real(key)?.ok_or_else(missing)
        };
        let original = "original_max_position_embeddings";
        let scaling = match text("rope_type")?.or(text("type")?).as_deref() {
            None | Some("default") => return Ok(None),
            Some("linear") => RopeScaling::Linear { factor: need("factor")? },
            Some("llama3") => RopeScaling::Llama3 {
                factor: need("factor")?,
                low_freq_factor: need("low_freq_factor")?,
                high_freq_factor: need("high_freq_factor")?,
                original_max_position_embeddings: need(original)?,
            },
            Some("yarn") => {
                let factor = need("factor")?;
                for key in ["mscale", "mscale_all_dim"] {
                    self.must_be_null(&format!("{of}.{key}"))?;
                }
                RopeScaling::Yarn {
                    factor,
                    beta_fast: real("beta_fast")?.unwrap_or(32.0),
                    beta_slow: real("beta_slow")?.unwrap_or(1.0),
                    attention_factor: real("attention_factor")?.unwrap_or(0.1 * factor.ln() + 1.0),
                    original_max_position_embeddings: match real(original)? {
                        Some(tokens) => tokens,
                        None => self.size("max_position_embeddings")? as f64,
                    },
                }
            }
            Some(other) => {
                let reason =
                    format!("must be default, linear, llama3 or yarn, got `{other}`: nothing else is supported");
                return Err(self.error(&format!("{of}.rope_type"), reason));
            }
        };
        scaling.check().map_err(|reason| self.error(of, reason))?;
        Ok(Some(scaling))
    }
}

/// `rope_scaling` as [`Config::rope_scaling`] reads it.
pub(super) fn write_scaling(scaling: Option<RopeScaling>) -> Value {
    let Some(scaling) = scaling else { return Value::Null };
    let Ok(Value::Object(tagged)) = serde_json::to_value(scaling) else { return Value::Null };
    let mut written = Map::new();
    for (kind, numbers) in tagged {
        written.insert("rope_type".into(), json!(kind));
        written.extend(numbers.as_object().cloned().unwrap_or_default());
    }
    Value::Object(written)
}
