//! Safetensors files, memory-mapped: a single file, or shards listed in an index.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use memmap2::Mmap;
use safetensors::SafeTensors;
use serde::Deserialize;

use super::tensor::{Dtype, Tensor};
use super::weights::WeightsError;

/// The file of a model in one piece.
const SINGLE: &str = "model.safetensors";

/// The list of shards of a model in pieces.
const INDEX: &str = "model.safetensors.index.json";

#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

/// Maps every tensor of a safetensors file, an index file, or a folder with either.
pub(super) fn read(path: &Path) -> Result<BTreeMap<String, Tensor>, WeightsError> {
    let mut tensors = BTreeMap::new();
    for file in files(path)? {
        read_file(&file, &mut tensors)?;
    }
    Ok(tensors)
}

fn files(path: &Path) -> Result<Vec<PathBuf>, WeightsError> {
    let (index, single) = match path.is_dir() {
        true => (path.join(INDEX), path.join(SINGLE)),
        false if path.extension().is_some_and(|extension| extension == "json") => (path.into(), path.into()),
        false => return Ok(vec![path.into()]),
    };
    if !index.exists() {
        return match single.exists() {
            true => Ok(vec![single]),
            false => Err(WeightsError::NoFiles { folder: path.into() }),
        };
    }
    let text = std::fs::read_to_string(&index).map_err(|source| WeightsError::Io { path: index.clone(), source })?;
    let parsed: Index =
        serde_json::from_str(&text).map_err(|source| WeightsError::Index { path: index.clone(), source })?;
    let mut shards: Vec<PathBuf> = parsed.weight_map.values().map(|shard| index.with_file_name(shard)).collect();
    shards.sort();
    shards.dedup();
    Ok(shards)
}

fn read_file(path: &Path, tensors: &mut BTreeMap<String, Tensor>) -> Result<(), WeightsError> {
    let map = map(path).map_err(|source| WeightsError::Io { path: path.into(), source })?;
    let (header, metadata) =
        SafeTensors::read_metadata(&map).map_err(|source| WeightsError::Header { path: path.into(), source })?;
    // Eight bytes say how long the header is; offsets count from its end.
    let data = 8 + header;
    for (name, info) in metadata.tensors() {
        let dtype = match info.dtype {
            safetensors::Dtype::BF16 => Dtype::Bf16,
            safetensors::Dtype::F32 => Dtype::F32,
            // A complex table of angles comes with Huginn; whether the name is needed is checked later.
            _ => continue,
        };
        let range = data + info.data_offsets.0..data + info.data_offsets.1;
        tensors.insert(name, Tensor::mapped(&info.shape, dtype, Arc::clone(&map), range));
    }
    Ok(())
}

fn map(path: &Path) -> std::io::Result<Arc<Mmap>> {
    let file = File::open(path)?;
    #[expect(unsafe_code, reason = "a mapping is the only way to use weights larger than the page cache is warm")]
    // SAFETY: the map is only read. As everywhere with mapped weights, the file must not be truncated while it is in
    // use; every bit pattern is a valid bf16 or f32, so a changed file changes results but breaks no invariant.
    let map = unsafe { Mmap::map(&file)? };
    Ok(Arc::new(map))
}
