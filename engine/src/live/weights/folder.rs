//! A model folder in Hugging Face's layout: what it is, and where its weights are.

use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::json;
use thiserror::Error;

use super::{Weights, WeightsError, safetensors_file};
use crate::architecture::{Architecture, ArchitectureError};
use crate::models::config::{Config, ConfigError, ModelConfig};
use crate::models::family;

/// A folder whose configs were read and checked.
#[derive(Clone, Debug)]
pub struct ModelFolder {
    path: PathBuf,
    /// The model.
    pub config: ModelConfig,
    /// How it is meant to be sampled.
    pub generation: Generation,
}

/// What a `generation_config.json` says; nothing where there is none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Generation {
    /// Draw instead of taking the largest logit.
    pub do_sample: Option<bool>,
    /// See [`crate::submission::Sampling::temperature`].
    pub temperature: Option<f32>,
    /// See [`crate::submission::Sampling::top_k`].
    pub top_k: Option<u32>,
    /// See [`crate::submission::Sampling::top_p`].
    pub top_p: Option<f32>,
}

/// Why a folder is no model that can be run.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "the messages say what the fields are")]
pub enum FolderError {
    /// It is no folder.
    #[error("{} is not a folder: a model is a folder with config.json and model.safetensors", path.display())]
    NoFolder { path: PathBuf },
    /// One of its JSON files.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The sizes fit no model.
    #[error("{}: {source}", path.display())]
    Architecture { path: PathBuf, source: ArchitectureError },
    /// The files of its weights.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// It could not be written.
    #[error("{}: {source}", path.display())]
    Write { path: PathBuf, source: std::io::Error },
    /// Something is there already.
    #[error("{} holds files already: name a folder that is new or empty", path.display())]
    NotEmpty { path: PathBuf },
}

impl ModelFolder {
    /// Reads `config.json` and `generation_config.json`. No weight is touched.
    ///
    /// # Errors
    /// The folder or its config is not there, a field is missing or asks for what cannot be done.
    pub fn open(path: &Path) -> Result<Self, FolderError> {
        if !path.is_dir() {
            return Err(FolderError::NoFolder { path: path.into() });
        }
        let config_path = path.join("config.json");
        let config = open(&config_path)?;
        let family = family::of(&config, &safetensors_file::names(path)?)?;
        let mut read = (family.read_config)(&config, &name(path))?;
        let wrong = |source| FolderError::Architecture { path: config_path.clone(), source };
        read.architecture.check().map_err(wrong)?;
        // Profiles know released models by their names.
        if let Some(released) = read.architecture.released() {
            read.architecture.name = released.name;
        }
        let mut generation = Generation::default();
        if let Some(config) = open_optional(&path.join("generation_config.json"))? {
            // Where both files name end tokens, generation stops at those of its own file.
            let ends = config.ids("eos_token_id")?;
            if !ends.is_empty() {
                read.end_tokens = ends;
            }
            generation = Generation {
                do_sample: config.flag("do_sample")?,
                temperature: config.real("temperature")?.map(|x| x as f32),
                top_k: config.optional_size("top_k")?.map(|k| u32::try_from(k).unwrap_or(u32::MAX)),
                top_p: config.real("top_p")?.map(|x| x as f32),
            };
        }
        // Without any of its own, whoever has the tokenizer knows them.
        read.end_tokens.retain(|token| !family.foreign_end_tokens.contains(token));
        Ok(Self { path: path.into(), config: read, generation })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The model's shape.
    pub fn architecture(&self) -> &Architecture {
        &self.config.architecture
    }

    /// Maps and checks the weights.
    ///
    /// # Errors
    /// A file is missing or broken; a tensor is missing, of another shape, not finite, or the model's config has no use for
    /// it.
    pub fn weights(&self) -> Result<Weights, WeightsError> {
        Weights::load(&self.path, &self.config.architecture)
    }

    /// Writes a folder of random weights, in bf16, with the config that [`Self::open`] reads as `architecture`.
    ///
    /// # Errors
    /// The folder holds files already, or cannot be written. What was begun is removed.
    pub fn write_random(architecture: &Architecture, seed: u64, path: &Path) -> Result<(), FolderError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| FolderError::Write { path, source }
        };
        std::fs::create_dir_all(path).map_err(failed(path))?;
        if std::fs::read_dir(path).map_err(failed(path))?.next().is_some() {
            return Err(FolderError::NotEmpty { path: path.into() });
        }
        let weights = Weights::random(architecture, seed);
        // The config last: a folder without one is no model.
        let file = path.join("model.safetensors");
        weights.save(&file).inspect_err(|_| drop(std::fs::remove_file(&file)))?;
        let config = path.join("config.json");
        let text = format!("{:#}\n", json!((architecture.family.write_config)(architecture)));
        std::fs::File::create(&config).and_then(|mut file| file.write_all(text.as_bytes())).map_err(failed(&config))
    }
}

/// The folder's name, as tables show the model.
fn name(path: &Path) -> String {
    let full = path.canonicalize().unwrap_or_else(|_| path.into());
    full.file_name().map_or_else(|| "model".into(), |name| name.to_string_lossy().into_owned())
}

/// A config is a few kilobytes; whoever points at weights by mistake should not wait for them to be read.
const CONFIG_BYTES_MAX: u64 = 16 << 20;

/// Reads a JSON file.
fn open(path: &Path) -> Result<Config, ConfigError> {
    let io = |source| ConfigError::Io { path: path.into(), source };
    let bytes = std::fs::metadata(path).map_err(io)?.len();
    if bytes > CONFIG_BYTES_MAX {
        let reason = format!("it has {bytes} bytes, a config at most {CONFIG_BYTES_MAX}");
        return Err(ConfigError::Json { path: path.into(), reason });
    }
    Config::parse(path, &std::fs::read(path).map_err(io)?)
}

/// The same of a file that may be missing.
fn open_optional(path: &Path) -> Result<Option<Config>, ConfigError> {
    match open(path) {
        Err(ConfigError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => Ok(None),
        config => config.map(Some),
    }
}
