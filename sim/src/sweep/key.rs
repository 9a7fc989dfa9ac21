//! What a point's results depend on, as a short key.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::plan::Plan;
use crate::scenario::{LiveSettings, OutputSettings, Scenario};

/// Changes when journals of older programs must not be read: figures of other requests or with other percentiles.
const FORMAT: u32 = 2;

/// Hashes of workload files, each read once.
#[derive(Debug, Default)]
pub(crate) struct Contents(Mutex<BTreeMap<PathBuf, String>>);

/// A hash of the resolved scenario, its profile and the content of its files; not of where those lie, nor of the revision.
pub(super) fn key(plan: &Plan, contents: &Contents) -> String {
    let mut scenario = Scenario {
        output: OutputSettings::default(),
        live: LiveSettings::default(),
        sweep: None,
        ..plan.scenario.clone()
    };
    if let Some(file) = &mut scenario.workload.file {
        *file = contents.hash(file).into();
    }
    // The profile itself follows.
    scenario.profile = crate::scenario::ProfileChoice::H100Paper;
    let inputs = serde_json::to_vec(&(FORMAT, scenario, &plan.profile)).expect("a scenario is JSON");
    hash(&inputs)
}

/// FNV-1a in 128 bits: not against forgers, but far from accidents.
pub(crate) fn hash(bytes: &[u8]) -> String {
    const BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    let hash = bytes.iter().fold(BASIS, |hash, &byte| (hash ^ u128::from(byte)).wrapping_mul(PRIME));
    format!("{hash:032x}")
}

impl Contents {
    pub(crate) fn hash(&self, file: &Path) -> String {
        let mut hashes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = hashes.get(file) {
            return known.clone();
        }
        // The plan has read it; if it is gone by now the run will say so.
        let hashed = hash(&std::fs::read(file).unwrap_or_default());
        hashes.insert(file.into(), hashed.clone());
        hashed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_fnv_1a() {
        assert_eq!(hash(b""), "6c62272e07bb014262b821756295c58d");
        assert_eq!(hash(b"foobar"), "343e1662793c64bf6f0d3597ba446f18");
    }
}
