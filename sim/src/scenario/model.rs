//! Which model a scenario is about.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use engine::architecture::Architecture;
use engine::live::weights::folder::{FolderError, ModelFolder};
use engine::models::initial_state::InitialState;
use serde::de::{self, Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};

/// A model by name, a folder, or any architecture.
#[derive(Clone, Debug, PartialEq)]
pub enum ModelChoice {
    /// One of [`Architecture::BUILTIN`].
    Named(&'static str),
    /// A folder in Hugging Face's layout: its `config.json` says what it is.
    Folder(PathBuf),
    /// Any other.
    Custom(Architecture),
}

impl Serialize for ModelChoice {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Named(name) => serializer.serialize_str(name),
            Self::Folder(folder) => BTreeMap::from([("folder", folder)]).serialize(serializer),
            Self::Custom(architecture) => BTreeMap::from([("custom", architecture)]).serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for ModelChoice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ModelVisitor)
    }
}

struct ModelVisitor;

impl<'de> Visitor<'de> for ModelVisitor {
    type Value = ModelChoice;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a model's name, `{ folder: DIR }` or `{ custom: .. }`")
    }

    fn visit_str<E: de::Error>(self, name: &str) -> Result<ModelChoice, E> {
        let known = Architecture::BUILTIN.into_iter().find(|known| *known == name);
        let unknown = || {
            let known = Architecture::BUILTIN.join(", ");
            E::custom(format!("there is no model `{name}`: name one of {known}, a `folder`, or a `custom` one"))
        };
        known.map(ModelChoice::Named).ok_or_else(unknown)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ModelChoice, A::Error> {
        let key = map.next_key::<String>()?;
        let model = match key.as_deref() {
            Some("folder") => ModelChoice::Folder(map.next_value()?),
            Some("custom") => ModelChoice::Custom(map.next_value()?),
            _ => return Err(de::Error::custom("a model is a name, `{ folder: DIR }` or `{ custom: .. }`")),
        };
        match map.next_key::<String>()? {
            Some(key) => Err(de::Error::custom(format!("a model is one thing, so `{key}` has no place here"))),
            None => Ok(model),
        }
    }
}

impl ModelChoice {
    /// Its shapes.
    ///
    /// # Errors
    /// It is a folder that cannot be read, or asks for what cannot be done.
    pub fn architecture(&self) -> Result<Architecture, FolderError> {
        match self {
            Self::Named(name) => Ok(Architecture::builtin(name).expect("every named model is built in")),
            Self::Folder(folder) => Ok(ModelFolder::open(folder)?.config.architecture),
            Self::Custom(architecture) => Ok(architecture.clone()),
        }
    }

    /// Where its loop starts unless a scenario says so.
    ///
    /// # Errors
    /// As [`Self::architecture`].
    pub fn initial_state(&self) -> Result<InitialState, FolderError> {
        match self {
            Self::Folder(folder) => Ok(ModelFolder::open(folder)?.config.initial_state),
            _ => Ok(InitialState::Zero),
        }
    }
}
