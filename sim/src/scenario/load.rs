//! From a scenario file and `--set` overrides to a [`Scenario`], or an error that shows the place.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use serde_json::Value;
use serde_yaml::{MessageFormatter, UserMessageFormatter};

use crate::scenario::Scenario;
use crate::scenario::fields::Fields;

/// A scenario with the text that it came from.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// Its fields, overrides applied.
    pub scenario: Scenario,
    /// The file's path, as given.
    pub path: PathBuf,
    /// The file's text.
    pub text: String,
    /// The same fields as a tree, overrides applied.
    pub fields: Fields,
}

/// Why there is no scenario.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what the fields are")]
pub enum LoadError {
    /// The file cannot be read.
    #[error("{}: {source}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    /// The text is not a scenario.
    #[error("{}: not a valid scenario", path.display())]
    Yaml { path: PathBuf, text: String, source: Box<serde_yaml::Error> },
    /// A `--set` does not fit.
    #[error("--set {argument}: {reason}")]
    Override { argument: String, reason: String },
}

impl Loaded {
    /// Reads a scenario and applies `path.to.field=value` overrides in order.
    ///
    /// Relative paths inside are looked up from the current directory first, then beside the scenario.
    ///
    /// # Errors
    /// The file, the YAML or an override is wrong; see [`LoadError`].
    pub fn read(path: &Path, overrides: &[String]) -> Result<Self, LoadError> {
        let text = std::fs::read_to_string(path).map_err(|source| LoadError::Read { path: path.into(), source })?;
        let yaml = |source| LoadError::Yaml { path: path.into(), text: text.clone(), source: Box::new(source) };
        let parsed = parse(&text).map_err(yaml)?;
        let mut fields = Fields::new(parse(&text).map_err(yaml)?, path.parent().unwrap_or(Path::new(".")));
        let scenario = apply_all(&mut fields, overrides)?.unwrap_or_else(|| fields.finished(parsed));
        Ok(Self { scenario, path: path.into(), text, fields })
    }

    /// Makes the scenario, and each point of its sweep, small enough for every commit.
    pub fn shrink(&mut self) {
        self.fields.quick = true;
        crate::scenario::quick::shrink(&mut self.scenario);
    }

    /// The scenario's name: its file's, without the ending.
    pub fn name(&self) -> String {
        self.path.file_stem().map_or_else(|| "scenario".into(), |stem| stem.to_string_lossy().into_owned())
    }
}

/// What an error of the YAML parser says to whoever wrote the file.
pub struct Wording;

impl MessageFormatter for Wording {
    fn format_message<'a>(&self, error: &'a serde_yaml::Error) -> Cow<'a, str> {
        match error {
            serde_yaml::Error::DuplicateMappingKey { key: Some(key), .. } => {
                format!("`{key}` is there twice: keep one").into()
            }
            serde_yaml::Error::InvalidScalar { ty, .. } if ty.starts_with(['i', 'u']) => {
                "a whole number is needed".into()
            }
            serde_yaml::Error::InvalidScalar { ty, .. } if ty.starts_with('f') => "a number is needed".into(),
            _ => UserMessageFormatter.format_message(error),
        }
    }
}

/// A parser's error in a line.
pub(crate) fn worded(error: &serde_yaml::Error) -> String {
    error.render_with_formatter(&Wording)
}

/// Parses YAML; the snippet in errors is left to whoever shows them.
pub fn parse<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, serde_yaml::Error> {
    serde_yaml::from_str_with_options(text, serde_yaml::options! { with_snippet: false })
}

/// Sets fields in order, and returns the scenario behind the last of them.
pub(crate) fn apply_all(fields: &mut Fields, overrides: &[String]) -> Result<Option<Scenario>, LoadError> {
    let mut last = None;
    for argument in overrides {
        let scenario =
            apply(fields, argument).map_err(|reason| LoadError::Override { argument: argument.clone(), reason })?;
        last = Some(scenario);
    }
    Ok(last)
}

/// Sets one field and checks that the result is a scenario.
fn apply(fields: &mut Fields, argument: &str) -> Result<Scenario, String> {
    let (path, text) = argument.split_once('=').ok_or("write it as path.to.field=value")?;
    let new: Value = parse(text).map_err(|error| format!("the value is not YAML: {}", worded(&error)))?;
    fields.set(path, new)?;
    fields.scenario()
}
