//! What the models' own code computed, as `expected.json` holds it.

use std::path::{Path, PathBuf};

use serde::Deserialize;

#[derive(Deserialize)]
pub(crate) struct Expected {
    pub(crate) loops: u8,
    pub(crate) vocab_size: usize,
    pub(crate) prompts: Vec<Vec<u32>>,
    pub(crate) fixed_ids: Vec<usize>,
    pub(crate) logits: Vec<Logits>,
    pub(crate) greedy: Runs,
    pub(crate) exits: Vec<Runs>,
    #[serde(default)]
    pub(crate) adaptive: Vec<Runs>,
    pub(crate) eos: Option<Eos>,
    pub(crate) bf16_noise: Option<Noise>,
}

/// The last position's, when all prompt tokens run `depth` loops.
#[derive(Deserialize)]
pub(crate) struct Logits {
    pub(crate) prompt: usize,
    pub(crate) depth: u8,
    pub(crate) top_ids: Vec<usize>,
    pub(crate) top: Vec<f64>,
    pub(crate) fixed: Vec<f64>,
    pub(crate) l2: f64,
    pub(crate) sum: f64,
    pub(crate) max_abs: f64,
}

/// Greedy continuations of the prompts, in one manner.
#[derive(Deserialize)]
pub(crate) struct Runs {
    pub(crate) threshold: Option<f32>,
    pub(crate) layout: Option<String>,
    pub(crate) runs: Vec<Run>,
}

#[derive(Deserialize)]
pub(crate) struct Run {
    pub(crate) prompt: usize,
    pub(crate) tokens: Vec<u32>,
    pub(crate) depths: Option<Vec<u8>>,
    pub(crate) logits: Option<Vec<f64>>,
}

/// The same with an end token.
#[derive(Deserialize)]
pub(crate) struct Eos {
    pub(crate) eos_token_id: u32,
    pub(crate) full_depth: Vec<Run>,
    pub(crate) exits: Runs,
}

/// How far runs of that code in bf16 are from those in f32.
#[derive(Deserialize)]
pub(crate) struct Noise {
    pub(crate) variants: Vec<Variant>,
}

#[derive(Deserialize)]
pub(crate) struct Variant {
    pub(crate) stored: Vec<Band>,
}

/// Over the stored ids of all prompts.
#[derive(Deserialize)]
pub(crate) struct Band {
    pub(crate) depth: u8,
    pub(crate) rms_rel: f64,
    pub(crate) max_rel: f64,
}

impl Expected {
    pub(crate) fn read(folder: &Path) -> Self {
        let text = std::fs::read_to_string(folder.join("expected.json")).unwrap();
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
    }
}

impl Logits {
    /// Errors at the stored ids, with what was expected.
    pub(crate) fn errors(&self, fixed_ids: &[usize], row: &[f32]) -> Vec<(f64, f64)> {
        let expected = self.top_ids.iter().zip(&self.top).chain(fixed_ids.iter().zip(&self.fixed));
        expected.map(|(&id, &expected)| (f64::from(row[id]) - expected, expected)).collect()
    }
}

/// The folders here, and those that the environment names.
pub(crate) fn folders() -> Vec<PathBuf> {
    // Asked for at run time too, since tests for a GPU are often built elsewhere.
    let package = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_else(|_| env!("CARGO_MANIFEST_DIR").into());
    let mut roots = vec![Path::new(&package).join("tests/hf/fixtures")];
    roots.extend(std::env::var_os("LOOPBATCH_GOLDEN").map(PathBuf::from));
    let entries = roots.iter().flat_map(|root| std::fs::read_dir(root).unwrap());
    let mut folders: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    folders.retain(|folder| folder.join("expected.json").is_file());
    folders.sort();
    assert!(folders.len() >= 9, "the fixtures are there");
    folders
}
