//! From a scenario file and `--set` overrides to a [`Scenario`], or an error that shows the place.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::scenario::{ProfileChoice, Scenario, WeightsChoice};

/// A scenario with the text that it came from.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// Its fields, overrides applied.
    pub scenario: Scenario,
    /// The file's path, as given.
    pub path: PathBuf,
    /// The file's text.
    pub text: String,
}

/// Why there is no scenario.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file cannot be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// The text is not a scenario.
    #[error("{}: not a valid scenario", path.display())]
    Yaml {
        /// The file.
        path: PathBuf,
        /// Its text.
        text: String,
        /// What is wrong, and where.
        source: Box<serde_yaml::Error>,
    },
    /// A `--set` does not fit.
    #[error("--set {argument}: {reason}")]
    Override {
        /// The argument.
        argument: String,
        /// What is wrong.
        reason: String,
    },
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
        let mut scenario: Scenario = parse(&text).map_err(yaml)?;
        if !overrides.is_empty() {
            let mut value: Value = parse(&text).map_err(yaml)?;
            for argument in overrides {
                scenario = apply(&mut value, argument)
                    .map_err(|reason| LoadError::Override { argument: argument.clone(), reason })?;
            }
        }
        let beside = path.parent().unwrap_or(Path::new("."));
        if let Some(file) = &mut scenario.workload.file {
            *file = look_up(file, beside);
        }
        if let ProfileChoice::File(file) = &mut scenario.profile {
            *file = look_up(file, beside);
        }
        if let WeightsChoice::File(file) = &mut scenario.live.weights {
            *file = look_up(file, beside);
        }
        Ok(Self { scenario, path: path.into(), text })
    }

    /// The scenario's name: its file's, without the ending.
    pub fn name(&self) -> String {
        self.path.file_stem().map_or_else(|| "scenario".into(), |stem| stem.to_string_lossy().into_owned())
    }
}

/// Parses YAML; the snippet in errors is left to whoever shows them.
pub fn parse<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, serde_yaml::Error> {
    serde_yaml::from_str_with_options(text, serde_yaml::options! { with_snippet: false })
}

fn look_up(file: &Path, beside: &Path) -> PathBuf {
    if file.exists() { file.into() } else { beside.join(file) }
}

/// Sets one field and checks that the result is a scenario.
fn apply(value: &mut Value, argument: &str) -> Result<Scenario, String> {
    let (path, text) = argument.split_once('=').ok_or("write it as path.to.field=value")?;
    let new: Value = parse(text).map_err(|error| format!("the value is not YAML: {error}"))?;
    set(value, path, new)?;
    serde_json::from_value(value.clone()).map_err(|error| error.to_string())
}

/// Puts `new` at a dotted path; maps that are missing on the way are made, lists are indexed from 0.
fn set(value: &mut Value, path: &str, new: Value) -> Result<(), String> {
    let mut at = value;
    for key in path.split('.') {
        if !at.is_object() && !at.is_array() {
            // `arrivals: offline` gives way to `arrivals: { poisson: .. }`.
            *at = Value::Object(serde_json::Map::new());
        }
        at = match at {
            Value::Array(list) => {
                let length = list.len();
                let index =
                    key.parse::<usize>().map_err(|_| format!("`{key}` is not an index into a list of {length}"))?;
                list.get_mut(index).ok_or_else(|| format!("the list has {length} entries, there is no {index}"))?
            }
            Value::Object(map) => map.entry(key).or_insert(Value::Null),
            _ => unreachable!("made a map above"),
        };
    }
    *at = new;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(before: &str, argument: &str, after: &str) {
        let mut value: Value = parse(before).unwrap();
        let (path, new) = argument.split_once('=').unwrap();
        set(&mut value, path, parse(new).unwrap()).unwrap();
        assert_eq!(value, parse::<Value>(after).unwrap(), "{before} with {argument}");
    }

    #[test]
    fn overrides_reach_every_scalar() {
        check("a: { b: 1 }", "a.b=2", "a: { b: 2 }");
        check("a: [{ b: 1 }, { b: 1 }]", "a.1.b=x", "a: [{ b: 1 }, { b: x }]");
        check("arrivals: offline", "arrivals.poisson.rate_per_s=4", "arrivals: { poisson: { rate_per_s: 4 } }");
        check("a: 1", "workload.file=lengths.csv", "{ a: 1, workload: { file: lengths.csv } }");
    }
}
