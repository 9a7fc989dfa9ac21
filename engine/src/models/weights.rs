//! A model's weights by released tensor name: from safetensors files, or seeded random.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use half::bf16;
use rayon::prelude::*;
use thiserror::Error;

use super::counter::{Stream, centred, draw};
use super::safetensors_file;
use super::tensor::Tensor;
use super::tensor_names::{Fill, TensorSpec, ignored, optional, required};
use crate::architecture::Architecture;

/// Why weights could not be loaded.
#[derive(Debug, Error)]
pub enum WeightsError {
    /// A file could not be opened.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A folder without weights.
    #[error("{} holds neither model.safetensors nor model.safetensors.index.json", folder.display())]
    NoFiles {
        /// The folder.
        folder: PathBuf,
    },
    /// An index that is not one.
    #[error("{}: an index must map tensor names to files under `weight_map`: {source}", path.display())]
    Index {
        /// The index.
        path: PathBuf,
        /// Where it breaks.
        source: serde_json::Error,
    },
    /// A file that is not safetensors.
    #[error("{}: not a safetensors file: {source}", path.display())]
    Header {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: safetensors::SafeTensorError,
    },
    /// A tensor that the model needs is not there.
    #[error("the weights lack `{name}` {shape:?} in bf16 or f32{}", hint(found.as_deref()))]
    Missing {
        /// The released name.
        name: String,
        /// The shape that it must have.
        shape: Vec<usize>,
        /// A tensor of no use to the model that may be the same one under another name.
        found: Option<String>,
    },
    /// A tensor has another shape than the model's.
    #[error("`{name}` must be {expected:?} for {model}, got {found:?}")]
    Shape {
        /// The tensor.
        name: String,
        /// The model that asks for it.
        model: String,
        /// The shape that it must have.
        expected: Vec<usize>,
        /// The shape that it has.
        found: Vec<usize>,
    },
    /// A tensor that the model has no use for: more likely another model, or a misnamed optional tensor.
    #[error("{model} has no tensor `{name}`")]
    Unexpected {
        /// The tensor.
        name: String,
        /// The model.
        model: String,
    },
}

fn hint(found: Option<&str>) -> String {
    found.map(|name| format!("; is it the one named `{name}`?")).unwrap_or_default()
}

/// A complete set of a model's tensors.
#[derive(Clone, Debug)]
pub struct Weights {
    tensors: BTreeMap<String, Tensor>,
}

impl Weights {
    /// Maps the weights in a safetensors file, an index, or a folder with either, and checks every name and shape.
    pub fn load(path: &Path, architecture: &Architecture) -> Result<Self, WeightsError> {
        Self::from_tensors(safetensors_file::read(path)?, architecture)
    }

    /// Checks that `tensors` are exactly the model's.
    pub fn from_tensors(
        mut tensors: BTreeMap<String, Tensor>,
        architecture: &Architecture,
    ) -> Result<Self, WeightsError> {
        for name in ignored(architecture.family) {
            tensors.remove(*name);
        }
        let required = required(architecture);
        let optional = optional(architecture);
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
        Ok(Self { tensors })
    }

    /// Random weights in bf16: a function of seed, tensor name and index, so the same on any machine and thread count.
    ///
    /// Linear layers keep the size of their input, norms stay near one and no weight is zero.
    pub fn random(architecture: &Architecture, seed: u64) -> Self {
        Self { tensors: random(required(architecture), seed) }
    }

    /// [`Self::random`] with the optional tensors too (Ouro's trained lookahead gate).
    pub fn random_with_optional(architecture: &Architecture, seed: u64) -> Self {
        let specs = required(architecture).into_iter().chain(optional(architecture)).collect();
        Self { tensors: random(specs, seed) }
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
        self.tensors.contains_key("lookahead_gate.weight")
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
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
