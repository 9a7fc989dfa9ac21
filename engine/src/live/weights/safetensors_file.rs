//! Safetensors files, memory-mapped: a single file, or shards listed in an index.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use memmap2::Mmap;
use safetensors::tensor::TensorView;
use safetensors::{SafeTensorError, SafeTensors};
use serde::Deserialize;

use super::WeightsError;
use super::tensor::{Dtype, Tensor};

/// The file of a model in one piece.
const SINGLE: &str = "model.safetensors";

/// The list of shards of a model in pieces.
const INDEX: &str = "model.safetensors.index.json";

/// A model in PyTorch's own form.
const PICKLED: &str = "pytorch_model.bin";

/// How a file begins that stands for one in Git's large file storage.
const LFS_POINTER: &[u8] = b"version https://git-lfs";

/// How PyTorch's own files begin: a zip archive of pickles, or a pickle.
const PICKLES: [&[u8]; 2] = [b"PK\x03\x04", b"\x80\x02"];

/// The tensors of some files.
#[derive(Debug, Default)]
pub(super) struct Read {
    pub(super) tensors: BTreeMap<String, Tensor>,
    /// Names, and types that are not read.
    pub(super) others: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

/// Maps every tensor of a safetensors file, an index file, or a folder with either.
pub(super) fn read(path: &Path) -> Result<Read, WeightsError> {
    let mut read = Read::default();
    for file in files(path)? {
        read_file(&file, &mut read)?;
    }
    Ok(read)
}

/// The names of a folder's tensors, from its index or the header of its file; none if its weights are not there.
pub(super) fn names(folder: &Path) -> Result<Vec<String>, WeightsError> {
    if let Ok(text) = std::fs::read_to_string(folder.join(INDEX)) {
        let parsed: Result<Index, _> = serde_json::from_str(&text);
        return Ok(parsed.map(|index| index.weight_map.into_keys().collect()).unwrap_or_default());
    }
    // What is wrong with a file is said when its tensors are read.
    let mut read = Read::default();
    let _ = read_file(&folder.join(SINGLE), &mut read);
    Ok(read.tensors.into_keys().chain(read.others.into_keys()).collect())
}

fn files(path: &Path) -> Result<Vec<PathBuf>, WeightsError> {
    let (index, single) = match path.is_dir() {
        true => (path.join(INDEX), path.join(SINGLE)),
        false if path.extension().is_some_and(|extension| extension == "json") => (path.into(), path.into()),
        false => return Ok(vec![path.into()]),
    };
    // A broken link is told as what it is when it is opened.
    let is_there = |path: &Path| path.symlink_metadata().is_ok();
    if !is_there(&index) {
        return match is_there(&single) {
            true => Ok(vec![single]),
            false => Err(WeightsError::NoFiles { folder: path.into(), pickles: is_there(&path.join(PICKLED)) }),
        };
    }
    let text = std::fs::read_to_string(&index).map_err(|source| WeightsError::Io { path: index.clone(), source })?;
    let parsed: Index =
        serde_json::from_str(&text).map_err(|source| WeightsError::Index { path: index.clone(), source })?;
    let mut shards: Vec<PathBuf> = Vec::new();
    for (tensor, shard) in parsed.weight_map {
        // A file beside the index, so that no folder can name others of this machine. Links in it are followed.
        let mut parts = Path::new(&shard).components();
        if !matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None)) {
            return Err(WeightsError::Outside { path: index, tensor, shard });
        }
        shards.push(index.with_file_name(shard));
    }
    shards.sort();
    shards.dedup();
    Ok(shards)
}

fn read_file(path: &Path, Read { tensors, others }: &mut Read) -> Result<(), WeightsError> {
    let io = |source| WeightsError::Io { path: path.into(), source };
    let map = map(path).map_err(io)?;
    if map.starts_with(LFS_POINTER) {
        return Err(WeightsError::Pointer { path: path.into() });
    }
    if PICKLES.iter().any(|magic| map.starts_with(magic)) {
        return Err(WeightsError::Pickle { path: path.into() });
    }
    let (header, metadata) = match SafeTensors::read_metadata(&map) {
        Ok(read) => read,
        Err(SafeTensorError::MetadataIncompleteBuffer) => {
            return Err(WeightsError::Truncated { path: path.into(), bytes: map.len() });
        }
        Err(source) => return Err(WeightsError::Header { path: path.into(), source }),
    };
    // Eight bytes say how long the header is; offsets count from its end.
    let data = 8 + header;
    for (name, info) in metadata.tensors() {
        let dtype = match info.dtype {
            safetensors::Dtype::BF16 => Dtype::Bf16,
            safetensors::Dtype::F16 => Dtype::F16,
            safetensors::Dtype::F32 => Dtype::F32,
            // Whether anybody needs it is not known here.
            other => {
                others.insert(name, format!("{other:?}"));
                continue;
            }
        };
        let range = data + info.data_offsets.0..data + info.data_offsets.1;
        let tensor = Tensor::mapped(&info.shape, dtype, Arc::clone(&map), range);
        if tensors.insert(name.clone(), tensor).is_some() {
            return Err(WeightsError::Twice { path: path.into(), name });
        }
    }
    Ok(())
}

fn map(path: &Path) -> std::io::Result<Arc<Mmap>> {
    let file = File::open(path)?;
    #[expect(unsafe_code, reason = "a mapping is the only way to use weights larger than the page cache is warm")]
    // SAFETY: the map is only read. As everywhere with mapped weights, the file must not be truncated while it is in
    // use; every bit pattern is a valid number, so a changed file changes results but breaks no invariant.
    let map = unsafe { Mmap::map(&file)? };
    Ok(Arc::new(map))
}

/// Writes tensors to a file.
pub(super) fn write(path: &Path, tensors: &BTreeMap<String, Tensor>) -> Result<(), WeightsError> {
    let failed = |source: String| WeightsError::Io { path: path.into(), source: std::io::Error::other(source) };
    let views = tensors.iter().map(|(name, tensor)| {
        let dtype = match tensor.dtype() {
            Dtype::Bf16 => safetensors::Dtype::BF16,
            Dtype::F16 => safetensors::Dtype::F16,
            Dtype::F32 => safetensors::Dtype::F32,
        };
        TensorView::new(dtype, tensor.shape().to_vec(), tensor.bytes()).map(|view| (name, view))
    });
    let views: Vec<_> = views.collect::<Result<_, _>>().map_err(|error| failed(error.to_string()))?;
    safetensors::serialize_to_file(views, None, path).map_err(|error| failed(error.to_string()))
}
