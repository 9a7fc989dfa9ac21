//! What results depend on, as short keys: journals know by them what they have.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use engine::architecture::Architecture;
use engine::metrics::Slo;
use engine::scheduler::{Finish, SchedulerConfig};
use serde::Serialize;
use sha2::{Digest, Sha256};
use traces::{Exits, ExitsConfig, WorkloadConfig};

use super::plan::{Plan, Planned};
use crate::scenario::{FinishSettings, LiveSettings, OutputSettings, ProfileChoice, Replicas, Scenario};

/// Everything that one scheduler's run reads of its plan, and nothing else: settings of other schedulers are not part of
/// it, nor is the device, which is a profile in one kind of run and a real one in the other.
#[derive(Debug, Serialize)]
pub(crate) struct RunInputs<'a> {
    model: &'a Architecture,
    /// With its file's content in place of its path.
    workload: WorkloadConfig,
    seed: u64,
    exits: Option<&'a ExitsConfig>,
    finish: Option<FinishSettings>,
    plane_copies: bool,
    slo: Option<Slo>,
    scheduler: SchedulerConfig,
    #[serde(skip_serializing_if = "Option::is_none")]
    replicas: Option<Replicas>,
}

impl<'a> RunInputs<'a> {
    pub(crate) fn of(plan: &'a Plan, planned: &Planned, hashes: &FileHashes) -> Self {
        let scenario = &plan.scenario;
        Self {
            model: &plan.model,
            workload: hashes.in_place_of_path(&scenario.workload),
            seed: scenario.seed,
            exits: (!matches!(planned.exits, Exits::FullDepth(_))).then_some(&scenario.exits),
            finish: (planned.config.finish == Finish::Eos).then_some(scenario.scheduler.finish),
            plane_copies: scenario.kv.plane_copies,
            slo: scenario.slo,
            scheduler: planned.config,
            replicas: scenario.replicas,
        }
    }
}

/// The key of a comparison: the resolved scenario, its profile and the content of its files; not of where those lie, nor
/// of the program's revision. `format` changes when figures of older programs must not be read.
pub(crate) fn of_comparison(format: u32, plan: &Plan, hashes: &FileHashes) -> String {
    let scenario = Scenario {
        output: OutputSettings::default(),
        live: LiveSettings::default(),
        sweep: None,
        workload: hashes.in_place_of_path(&plan.scenario.workload),
        // The profile itself follows.
        profile: ProfileChoice::H100Paper,
        ..plan.scenario.clone()
    };
    hash(&(format, scenario, &plan.profile))
}

/// A hash of anything that is JSON, in 32 digits.
pub(crate) fn hash(inputs: &impl Serialize) -> String {
    hash_bytes(&serde_json::to_vec(inputs).expect("a scenario is JSON"))
}

/// The first half of SHA-256.
fn hash_bytes(bytes: &[u8]) -> String {
    Sha256::digest(bytes)[..16].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Hashes of workload files, each read once.
#[derive(Debug, Default)]
pub(crate) struct FileHashes(Mutex<BTreeMap<PathBuf, String>>);

impl FileHashes {
    fn in_place_of_path(&self, workload: &WorkloadConfig) -> WorkloadConfig {
        let file = workload.file.as_ref().map(|file| self.hash(file).into());
        WorkloadConfig { file, ..workload.clone() }
    }

    fn hash(&self, file: &Path) -> String {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(hash) = known.get(file) {
            return hash.clone();
        }
        // The plan has read it; if it is gone by now the run will say so.
        let hashed = hash_bytes(&std::fs::read(file).unwrap_or_default());
        known.insert(file.into(), hashed.clone());
        hashed
    }
}
