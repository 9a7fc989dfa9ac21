//! A model's weights by released tensor name: from safetensors files, or seeded random.

pub mod folder;
pub mod safetensors_file;
pub mod tensor;

use std::collections::BTreeMap;
use std::hash::Hasher;
use std::path::{Path, PathBuf};

use fnv::FnvHasher;
use half::bf16;
use rayon::prelude::*;
use thiserror::Error;

use crate::architecture::Architecture;
use crate::models::counter::{Stream, centred, draw};
use crate::models::family::{self, ALIASES, HEAD, LOOKAHEAD_GATE};
use crate::models::tensor_spec::{Fill, TensorSpec};
use safetensors_file::Read;
use tensor::Tensor;

/// Why weights could not be loaded.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "the messages say what the fields are")]
pub enum WeightsError {
    /// A file could not be opened.
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: std::io::Error },
    /// A folder without weights.
    #[error("{} holds neither model.safetensors nor model.safetensors.index.json{}", folder.display(), pickled(*pickles))]
    NoFiles { folder: PathBuf, pickles: bool },
    /// What stands for a file that was not fetched.
    #[error("{} is a pointer of Git's large file storage and not the file: fetch it with `git lfs pull`", path.display())]
    Pointer { path: PathBuf },
    /// PyTorch's own form, which can hold programs.
    #[error("{} is a PyTorch file: save the model as safetensors (`save_pretrained(.., safe_serialization=True)`)", path.display())]
    Pickle { path: PathBuf },
    /// A file that ends too early.
    #[error("{} is cut off: it has {bytes} bytes, its header speaks of others; fetch it again", path.display())]
    Truncated { path: PathBuf, bytes: usize },
    /// An index that names a file elsewhere.
    #[error("{}: `{tensor}` must be in a file of this folder, not in `{shard}`", path.display())]
    Outside { path: PathBuf, tensor: String, shard: String },
    /// A tensor that two files hold.
    #[error("{}: `{name}` is in another file too: which one is right cannot be told", path.display())]
    Twice { path: PathBuf, name: String },
    /// A tensor in numbers of another kind.
    #[error("`{name}` is stored as {dtype}: only BF16, F16 and F32 are read, so convert it")]
    Dtype { name: String, dtype: String },
    /// A tensor with a number that is none.
    #[error(
        "`{name}` holds a number that is infinite or no number, at index {index}: the file is damaged, or training diverged"
    )]
    NotFinite { name: String, index: usize },
    /// An index that is not one.
    #[error("{}: an index must map tensor names to files under `weight_map`: {source}", path.display())]
    Index { path: PathBuf, source: serde_json::Error },
    /// A file that is not safetensors.
    #[error("{}: not a safetensors file: {source}", path.display())]
    Header { path: PathBuf, source: safetensors::SafeTensorError },
    /// A tensor that the model needs is not there.
    #[error("the weights lack `{name}` {shape:?}{}", hint(found.as_deref()))]
    Missing { name: String, shape: Vec<usize>, found: Option<String> },
    /// A tensor has another shape than the model's.
    #[error("`{name}` must be {expected:?} for {model}, got {found:?}")]
    Shape { name: String, model: String, expected: Vec<usize>, found: Vec<usize> },
    /// A tensor that the model has no use for: more likely another model, or a misnamed optional tensor.
    #[error("{model} has no tensor `{name}`")]
    Unexpected { name: String, model: String },
}

fn hint(found: Option<&str>) -> String {
    found.map(|name| format!("; is it the one named `{name}`?")).unwrap_or_default()
}

fn pickled(pickles: bool) -> &'static str {
    let hint = "; pytorch_model.bin is not read, so save the model as safetensors";
    if pickles { hint } else { "" }
}

/// A complete set of a model's tensors.
#[derive(Clone, Debug)]
pub struct Weights {
    tensors: BTreeMap<String, Tensor>,
    warnings: Vec<String>,
}

impl Weights {
    /// Maps the weights in a safetensors file, an index, or a folder with either, and checks every name, shape and number.
    ///
    /// # Errors
    /// A file is missing or broken; a tensor is missing, of another shape, not finite, or of no use to the model.
    pub fn load(path: &Path, architecture: &Architecture) -> Result<Self, WeightsError> {
        let Read { tensors, others } = safetensors_file::read(path)?;
        let needed = |name: &&String| !family::is_ignored(architecture, name);
        if let Some(name) = others.keys().find(needed) {
            return Err(WeightsError::Dtype { name: name.clone(), dtype: others[name].clone() });
        }
        let weights = Self::from_tensors(tensors, architecture)?;
        for (name, tensor) in weights.iter() {
            if let Some(index) = tensor.first_not_finite() {
                return Err(WeightsError::NotFinite { name: name.into(), index });
            }
        }
        Ok(weights)
    }

    /// Checks that `tensors` are exactly the model's, by released names or their public aliases.
    ///
    /// # Errors
    /// A tensor is missing, of another shape, or of no use to the model.
    pub fn from_tensors(
        mut tensors: BTreeMap<String, Tensor>,
        architecture: &Architecture,
    ) -> Result<Self, WeightsError> {
        for (alias, name) in ALIASES {
            if !tensors.contains_key(name)
                && let Some(tensor) = tensors.remove(alias)
            {
                tensors.insert(name.into(), tensor);
            }
        }
        let mut warnings = Vec::new();
        let embedding = (architecture.family.tensors)(architecture).embedding;
        if architecture.tied_head()
            && let (Some(head), Some(embedding)) = (tensors.get(HEAD), tensors.get(&embedding))
            && (head.shape() != embedding.shape() || head.to_f32() != embedding.to_f32())
        {
            warnings.push(format!(
                "`{HEAD}` differs from the embedding and is not used, since the config ties them; \
                 if it was trained, set `tie_word_embeddings` (Huginn: `tie_embeddings`) to false"
            ));
        }
        tensors.retain(|name, _| !family::is_ignored(architecture, name));
        let required = family::required(architecture);
        let optional = family::optional(architecture);
        let known = |name: &str| required.iter().chain(&optional).any(|spec| spec.name == name);
        let strangers: Vec<&String> = tensors.keys().filter(|name| !known(name)).collect();
        let half_optional = optional.iter().any(|spec| tensors.contains_key(&spec.name));
        let needed = required.iter().chain(optional.iter().filter(|_| half_optional));
        for spec in needed {
            let tensor = tensors.get(&spec.name).ok_or_else(|| WeightsError::Missing {
                name: spec.name.clone(),
                shape: spec.shape.clone(),
                found: likeliest(spec, &strangers, &tensors),
            })?;
            if tensor.shape() != spec.shape {
                return Err(WeightsError::Shape {
                    name: spec.name.clone(),
                    model: architecture.name.clone(),
                    expected: spec.shape.clone(),
                    found: tensor.shape().to_vec(),
                });
            }
        }
        if let Some(&name) = strangers.first() {
            return Err(WeightsError::Unexpected { name: name.clone(), model: architecture.name.clone() });
        }
        Ok(Self { tensors, warnings })
    }

    /// Random weights in bf16: a function of seed, tensor name and index, so the same on any machine and thread count.
    ///
    /// Linear layers keep the size of their input, norms stay near one and no weight is zero.
    pub fn random(architecture: &Architecture, seed: u64) -> Self {
        Self { tensors: random(family::required(architecture), seed), warnings: Vec::new() }
    }

    /// [`Self::random`] with the optional tensors too (Ouro's trained lookahead gate).
    pub fn random_with_optional(architecture: &Architecture, seed: u64) -> Self {
        let specs = family::required(architecture).into_iter().chain(family::optional(architecture)).collect();
        Self { tensors: random(specs, seed), warnings: Vec::new() }
    }

    /// Writes a safetensors file.
    ///
    /// # Errors
    /// The system's.
    pub fn save(&self, path: &Path) -> Result<(), WeightsError> {
        safetensors_file::write(path, &self.tensors)
    }

    /// What a reader should know of the files although they can be used.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// A tensor of the model. Panics if the model has none of that name.
    pub fn tensor(&self, name: &str) -> &Tensor {
        self.get(name).unwrap_or_else(|| panic!("the checked weights hold no `{name}`"))
    }

    /// A tensor that the weights may hold.
    pub fn get(&self, name: &str) -> Option<&Tensor> {
        self.tensors.get(name)
    }

    /// Every tensor, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Tensor)> {
        self.tensors.iter().map(|(name, tensor)| (name.as_str(), tensor))
    }

    /// True if the weights hold a trained lookahead gate.
    pub fn has_lookahead_gate(&self) -> bool {
        self.tensors.contains_key(&format!("{LOOKAHEAD_GATE}.weight"))
    }

    /// The same model as it was before its lookahead gate was trained: under `lookahead` its released gate is delayed.
    #[must_use]
    pub fn without_lookahead_gate(mut self) -> Self {
        self.tensors.retain(|name, _| !name.starts_with(LOOKAHEAD_GATE));
        self
    }
}

/// Among the tensors of no use, the one of the right shape that shares most of the name.
fn likeliest(spec: &TensorSpec, strangers: &[&String], tensors: &BTreeMap<String, Tensor>) -> Option<String> {
    let shared = |name: &str| {
        let common = |a: &mut dyn Iterator<Item = char>, b: &mut dyn Iterator<Item = char>| {
            a.zip(b).take_while(|(x, y)| x == y).count()
        };
        common(&mut name.chars(), &mut spec.name.chars())
            + common(&mut name.chars().rev(), &mut spec.name.chars().rev())
    };
    let same_shape = strangers.iter().filter(|name| tensors[**name].shape() == spec.shape);
    same_shape.max_by_key(|name| shared(name)).map(|name| (*name).clone())
}

fn random(specs: Vec<TensorSpec>, seed: u64) -> BTreeMap<String, Tensor> {
    specs
        .into_iter()
        .map(|spec| {
            let stream = name_hash(&spec.name);
            let numbers = spec.shape.iter().product::<usize>();
            let values = (0..numbers).into_par_iter().with_min_len(1 << 14);
            let values = values.map(|i| bf16::from_f32(value(seed, stream, i as u64, spec.fill))).collect();
            (spec.name, Tensor::from_bf16(&spec.shape, values))
        })
        .collect()
}

/// Element `index` of the tensor whose name hashes to `stream`; 12^0.5 turns (-1/2, 1/2) into unit variance.
fn value(seed: u64, stream: u64, index: u64, fill: Fill) -> f32 {
    fill.mean + fill.std * 12f32.sqrt() * centred(draw(seed, Stream::Weights, stream, index))
}

/// FNV-1a: a tensor's draws depend on its name, not on its place among the others.
pub(crate) fn name_hash(name: &str) -> u64 {
    let mut hasher = FnvHasher::default();
    hasher.write(name.as_bytes());
    hasher.finish()
}
