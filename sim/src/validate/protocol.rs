//! A protocol's YAML: a base scenario, and runs that change fields of it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, MapAccess, Visitor};
use serde_json::{Map, Value};
use traces::numbers::{RatePerS, Seconds};

use crate::scenario::Scenario;
use crate::scenario::fields::Fields;
use crate::scenario::load::{self, LoadError, Loaded};
use crate::scenario::numbers::{Count, Factor, Repeats};

/// The file's fields; see `docs/validate.md` for each one's meaning and default.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    base: Base,
    #[serde(default)]
    capacity_per_s: BTreeMap<String, RatePerS>,
    runs: Vec<RunEntry>,
}

/// A scenario's file, or its fields, which are checked here and read again as a tree in which they can be set.
#[derive(Clone, Debug)]
enum Base {
    Path(PathBuf),
    Inline,
}

/// One run: what it changes in the base scenario, and how often it is measured.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunEntry {
    /// Unique in the protocol.
    pub name: String,
    /// Runs of one group belong into one plot; a group of its own by default.
    #[serde(default)]
    pub group: Option<String>,
    /// How important it is, for the reader; the order of the runs is what counts.
    #[serde(default = "one")]
    pub tier: Count,
    /// Live runs of each scheduler.
    #[serde(default = "one")]
    pub repeats: Repeats,
    /// Fields of the scenario by their dotted paths, as `--set` names them.
    #[serde(default)]
    pub set: Map<String, Value>,
    /// The arrivals' rate as a share of each scheduler's capacity; online only.
    #[serde(default)]
    pub rate_share: Option<Factor>,
    /// How long requests arrive, about: as many as the rate gives in this time, a fixed count on both sides.
    #[serde(default)]
    pub window_s: Option<Seconds>,
}

/// A protocol with the text that it came from.
#[derive(Clone, Debug)]
pub struct Protocol {
    /// The file, as given.
    pub path: PathBuf,
    /// Its text.
    pub text: String,
    /// The base scenario's file, if it has one of its own.
    pub(super) base: Option<PathBuf>,
    /// The base scenario's fields, overrides applied.
    pub(super) fields: Fields,
    /// Capacities that are given, in requests per second by scheduler.
    pub(super) capacity_per_s: BTreeMap<String, RatePerS>,
    /// In the order in which they are run.
    pub runs: Vec<RunEntry>,
}

/// A protocol that cannot be run, and where in its file the fault is.
#[derive(Debug, thiserror::Error)]
#[error("{}: {reason}", keys.join("."))]
pub struct ProtocolError {
    /// The way to the field at fault; keys may have dots in them.
    pub keys: Vec<String>,
    /// What is wrong and what to change.
    pub reason: String,
}

impl Protocol {
    /// Reads a protocol and applies `path.to.field=value` overrides to its base scenario; with `quick`, every run is shrunk.
    ///
    /// # Errors
    /// The file, the base's file, the YAML or an override is wrong; see [`LoadError`].
    pub fn read(path: &Path, overrides: &[String], quick: bool) -> Result<Self, LoadError> {
        let text = std::fs::read_to_string(path).map_err(|source| LoadError::Read { path: path.into(), source })?;
        let yaml = |source| LoadError::Yaml { path: path.into(), text: text.clone(), source: Box::new(source) };
        let file: File = load::parse(&text).map_err(yaml)?;
        let beside = path.parent().unwrap_or(Path::new("."));
        let (base, mut fields) = match file.base {
            Base::Path(base) => {
                let base = if base.exists() { base } else { beside.join(base) };
                let fields = Loaded::read(&base, &[])?.fields;
                (Some(base), fields)
            }
            Base::Inline => {
                let tree: Map<String, Value> = load::parse(&text).map_err(yaml)?;
                (None, Fields::new(tree["base"].clone(), beside))
            }
        };
        load::apply_all(&mut fields, overrides)?;
        fields.quick = quick;
        Ok(Self { path: path.into(), text, base, fields, capacity_per_s: file.capacity_per_s, runs: file.runs })
    }

    /// The protocol's name: its file's, without the ending.
    pub fn name(&self) -> String {
        self.path.file_stem().map_or_else(|| "protocol".into(), |stem| stem.to_string_lossy().into_owned())
    }

    /// The scenario of a run, rates and counts as it is written.
    ///
    /// # Errors
    /// A field that it sets does not fit.
    pub(super) fn scenario(&self, index: usize) -> Result<Scenario, ProtocolError> {
        let mut fields = self.fields.clone();
        for (field, value) in &self.runs[index].set {
            fields.set(field, value.clone()).map_err(|reason| at_set(index, field, reason))?;
        }
        fields.scenario().map_err(|reason| match self.first_wrong(index) {
            Some(field) => at_set(index, &field, reason),
            None => ProtocolError { keys: vec!["base".into()], reason },
        })
    }

    /// Where a scenario's field comes from in a run: what the run sets, or the base.
    pub(super) fn blame(&self, index: usize, path: &str, reason: String) -> ProtocolError {
        let concerns = |field: &&String| {
            let below = |inner: &str, outer: &str| inner == outer || inner.starts_with(&format!("{outer}."));
            below(field, path) || below(path, field)
        };
        match self.runs[index].set.keys().find(concerns) {
            Some(field) => at_set(index, field, format!("{path}: {reason}")),
            None => {
                let run = format!("in run `{}`: {reason}", self.runs[index].name);
                ProtocolError {
                    keys: ["base"].into_iter().chain(path.split('.')).map(String::from).collect(),
                    reason: run,
                }
            }
        }
    }

    /// The field with whose value the scenario stops being one.
    fn first_wrong(&self, index: usize) -> Option<String> {
        let mut fields = self.fields.clone();
        let wrong = |(field, value): &(&String, &Value)| {
            fields.set(field, (*value).clone()).is_err() || fields.scenario().is_err()
        };
        self.runs[index].set.iter().find(wrong).map(|(field, _)| field.clone())
    }
}

fn at_set(index: usize, field: &str, reason: String) -> ProtocolError {
    ProtocolError { keys: vec!["runs".into(), index.to_string(), "set".into(), field.into()], reason }
}

fn one<const MAX: u32>() -> Count<MAX> {
    Count(1)
}

impl<'de> Deserialize<'de> for Base {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(BaseVisitor)
    }
}

/// Not an untagged enum, which would lose the place of a mistake inside the scenario.
struct BaseVisitor;

impl<'de> Visitor<'de> for BaseVisitor {
    type Value = Base;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a scenario, or the path of its file")
    }

    fn visit_str<E: Error>(self, path: &str) -> Result<Base, E> {
        Ok(Base::Path(path.into()))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Base, A::Error> {
        Scenario::deserialize(MapAccessDeserializer::new(map)).map(|_| Base::Inline)
    }
}
