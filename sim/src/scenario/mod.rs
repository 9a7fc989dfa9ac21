//! A scenario: everything that changes a result, as YAML.

pub mod axes;
pub mod fields;
pub mod inputs;
pub mod load;
pub mod locate;
pub mod model;
pub mod numbers;
pub mod quick;

use std::path::{Path, PathBuf};

use engine::layout::Layout;
use engine::metrics::Slo;
use engine::models::initial_state::InitialState;
use engine::scheduler::{CachedPages, Overlap, Prefill, Pressure};
use engine::whole;
use serde::{Deserialize, Serialize};
use traces::{ExitsConfig, WorkloadConfig};

use axes::Axes;
use model::ModelChoice;
use numbers::{Count, Reached, Repeats, Share, Threads};

/// The file's fields; see `docs/scenario.md` for each one's meaning and default.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// The looped model.
    pub model: ModelChoice,
    /// What the device needs for each stage.
    pub profile: ProfileChoice,
    /// A variant of the profile, by name.
    #[serde(default)]
    pub variant: Option<String>,
    /// Which requests arrive, and when.
    pub workload: WorkloadConfig,
    /// After how many loops each token exits.
    pub exits: ExitsConfig,
    /// Settings that all schedulers share.
    #[serde(default)]
    pub scheduler: SchedulerSettings,
    /// The KV pool.
    #[serde(default)]
    pub kv: KvSettings,
    /// The schedulers, run on the same requests.
    #[serde(default = "default_compare")]
    pub compare: Vec<SchedulerEntry>,
    /// Several engines behind a router (modelled runs); one without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<Replicas>,
    /// Decides every random number.
    #[serde(default, deserialize_with = "whole::read")]
    pub seed: u64,
    /// Runs with seeds `seed`, `seed + 1`, .., for intervals.
    #[serde(default = "one")]
    pub repeats: Repeats,
    /// Latency limits, for goodput and (online) for capacity.
    #[serde(default)]
    pub slo: Option<Slo>,
    /// What is computed besides the runs themselves, and what is written.
    #[serde(default)]
    pub output: OutputSettings,
    /// The real model of `--live` runs.
    #[serde(default)]
    pub live: LiveSettings,
    /// Fields to vary, each over a list of values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sweep: Option<Axes>,
}

/// Where the latency model comes from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ProfileChoice {
    /// The paper's H100, derived from its published figures.
    #[serde(rename = "h100-paper")]
    H100Paper,
    /// Our engine on an H200, calibrated.
    H200,
    /// A profile as written by `calibrate`.
    File(PathBuf),
    /// Computed from a datasheet.
    Roofline {
        /// The device's name.
        gpu: String,
        /// Share of the datasheet's bandwidth that is reached.
        #[serde(default)]
        bandwidth_share: Reached,
        /// Share of the datasheet's matrix throughput that is reached.
        #[serde(default)]
        compute_share: Reached,
    },
}

/// Engines that are all alike, each with a device of its own, and who gets which request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Replicas {
    /// How many.
    pub count: Count<1024>,
    /// Who gets the next request.
    #[serde(default)]
    pub routing: Routing,
}

/// Who gets the next request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Routing {
    /// One after the other.
    #[default]
    RoundRobin,
    /// Whoever has the fewest requests that are not over; of several the first.
    LeastLoaded,
}

/// Settings that all schedulers of a scenario share. Defaults are the paper's Table 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SchedulerSettings {
    /// W: resident sequences at most.
    pub max_num_seqs: Count,
    /// M: prompt tokens per prefill batch at most.
    pub max_num_batched_tokens: Count,
    /// S: free slots that a prefill waits for; `max(1, W / 8)` by default.
    pub min_free_slots: Option<Count>,
    /// What prompts leave to decode steps.
    #[serde(skip_serializing_if = "PrefillSettings::is_first")]
    pub prefill: PrefillSettings,
    /// Prompt plus output at most; longer requests are refused.
    pub max_context_tokens: Count,
    /// How far the host runs ahead of the device.
    pub overlap: Overlap,
    /// What ends a sequence.
    pub finish: FinishSettings,
}

/// See [`engine::scheduler::Prefill`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum PrefillSettings {
    /// Whoever can be admitted is prefilled first.
    #[default]
    First,
    /// At most so many prefill batches between two decode steps.
    Share(Count),
    /// One prefill batch between two decode steps, of at most so many tokens.
    Interleave(Count),
}

impl PrefillSettings {
    /// As it is without a word.
    fn is_first(&self) -> bool {
        *self == Self::First
    }

    /// What the scheduler is told.
    pub(crate) fn policy(self) -> Prefill {
        match self {
            Self::First => Prefill::First,
            Self::Share(Count(batches)) => Prefill::Share(batches),
            Self::Interleave(Count(tokens)) => Prefill::Interleave(tokens),
        }
    }
}

/// What ends a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum FinishSettings {
    /// Its output length, known from the start.
    Length,
    /// An end-of-sequence token at its output length, which the scheduler does not know.
    Eos {
        /// What the scheduler reserves and stops at.
        max_output_tokens: Count,
    },
}

/// The KV pool. Defaults are the paper's Table 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct KvSettings {
    /// Where the KV of each loop is kept.
    pub layout: Layout,
    /// Blocks of one core plane each.
    pub blocks: Count,
    /// Tokens per block.
    pub block_tokens: Count,
    /// Share of the blocks that admission leaves free while anything decodes.
    pub headroom: Share,
    /// What happens when running sequences need more.
    pub pressure: Pressure,
    /// `last_exited` only: copy an exited token's KV into the planes it skipped, instead of reading the last one written.
    pub plane_copies: bool,
    /// Keep pages for requests that begin alike.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix_cache: Option<PrefixCacheSettings>,
}

/// Which pages outlive their requests.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PrefixCacheSettings {
    /// Those of prompts, or those of outputs as well.
    pub pages: CachedPages,
}

/// One scheduler.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SchedulerEntry {
    /// Which batches are formed.
    pub mode: ModeName,
    /// K, for `refill`; 1 for Ouro and W / 4 for Huginn by default.
    #[serde(default)]
    pub min_coda_batch: Option<Count>,
    /// K as a share of W: `max(1, floor(share W))`.
    #[serde(default)]
    pub coda_share: Option<Share>,
    /// Run every token at full depth, as a control.
    #[serde(default)]
    pub full_depth: bool,
    /// Its name in reports.
    #[serde(default)]
    pub name: Option<String>,
}

/// See [`engine::scheduler::Mode`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModeName {
    /// Whole decode steps at full depth.
    ContinuousBatching,
    /// Exits shrink the core batch.
    NoRefill,
    /// Successors of exited tokens refill it, once at least K have gathered.
    Refill,
    /// The same, as soon as waiting for more exits would cost more than it saves.
    AdaptiveRefill,
}

impl ModeName {
    /// The name in scenarios.
    pub fn name(self) -> &'static str {
        match self {
            Self::ContinuousBatching => "continuous_batching",
            Self::NoRefill => "no_refill",
            Self::Refill => "refill",
            Self::AdaptiveRefill => "adaptive_refill",
        }
    }
}

impl SchedulerEntry {
    /// A scheduler of a mode, with its defaults.
    pub fn of(mode: ModeName) -> Self {
        Self { mode, min_coda_batch: None, coda_share: None, full_depth: false, name: None }
    }
}

/// What is computed and written besides `summary.json` and the resolved scenario.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OutputSettings {
    /// `requests.parquet`.
    pub requests: bool,
    /// `steps.parquet`.
    pub steps: bool,
    /// `trace.json`, for Perfetto.
    pub timeline: bool,
    /// Plots and `report.html`.
    pub plots: bool,
    /// Run the schedulers again at the device's physical floor (offline).
    pub floor: bool,
    /// Search the capacity of each scheduler (online, with an `slo`).
    pub capacity: bool,
}

/// What a live run needs beside the scheduler.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LiveSettings {
    /// The model's parameters; the folder's where the model is one, else random ones.
    pub weights: Option<WeightsChoice>,
    /// Where Huginn's loop starts; as its folder says where the model is one, else zero.
    pub initial_state: Option<InitialState>,
    /// Decides the prompts' tokens.
    #[serde(deserialize_with = "whole::read")]
    pub prompt_seed: u64,
    /// CPU threads; 0 takes one a core.
    pub threads: Threads,
    /// Live runs of each scheduler, for their spread.
    pub repeats: Repeats,
    /// Sizes the KV pool by the GPU's memory, in place of `kv.blocks`: this share of what the weights leave free.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kv_fraction: Option<Share>,
}

/// Where a live model's parameters come from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WeightsChoice {
    /// Random, from a seed: times do not depend on values.
    Random(#[serde(deserialize_with = "whole::read")] u64),
    /// A safetensors file, the index of several, or a folder with either.
    File(PathBuf),
}

impl Scenario {
    /// The files that it names.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        let profile = if let ProfileChoice::File(file) = &self.profile { Some(file) } else { None };
        let weights = if let Some(WeightsChoice::File(file)) = &self.live.weights { Some(file) } else { None };
        let model = if let ModelChoice::Folder(folder) = &self.model { Some(folder) } else { None };
        [self.workload.file.as_ref(), profile, weights, model].into_iter().flatten().map(PathBuf::as_path)
    }

    /// The model's parameters, given or by default.
    pub fn weights(&self) -> WeightsChoice {
        self.live.weights.clone().unwrap_or_else(|| match &self.model {
            ModelChoice::Folder(folder) => WeightsChoice::File(folder.clone()),
            _ => WeightsChoice::Random(0),
        })
    }
}

impl Default for SchedulerSettings {
    fn default() -> Self {
        Self {
            max_num_seqs: Count(64),
            max_num_batched_tokens: Count(8192),
            min_free_slots: None,
            prefill: PrefillSettings::First,
            max_context_tokens: Count(16_384),
            overlap: Overlap::Lookahead,
            finish: FinishSettings::Length,
        }
    }
}

impl Default for KvSettings {
    fn default() -> Self {
        Self {
            layout: Layout::Shared,
            blocks: Count(20_480),
            block_tokens: Count(16),
            headroom: Share(0.0),
            pressure: Pressure::Reserve,
            plane_copies: false,
            prefix_cache: None,
        }
    }
}

impl Default for OutputSettings {
    fn default() -> Self {
        Self { requests: true, steps: true, timeline: true, plots: true, floor: true, capacity: true }
    }
}

impl Default for LiveSettings {
    fn default() -> Self {
        Self {
            weights: None,
            initial_state: None,
            prompt_seed: 0,
            threads: Threads(0),
            repeats: Count(3),
            kv_fraction: None,
        }
    }
}

/// No repeats.
fn one() -> Repeats {
    Count(1)
}

/// The paper's comparison.
pub(crate) fn default_compare() -> Vec<SchedulerEntry> {
    [ModeName::ContinuousBatching, ModeName::NoRefill, ModeName::Refill].map(SchedulerEntry::of).into()
}
