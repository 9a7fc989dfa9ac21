//! A machine that obeys a profile, and what a calibration would measure on it.

use std::fmt::Write;

use engine::profile::Profile;
use rand_pcg::Pcg64;

use crate::synthetic::{grid, measured, noise};

/// What to time besides whole steps.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Timed {
    Steps,
    StepsAndStages,
}

/// A shipped profile.
pub(crate) fn shipped(model: &str) -> Profile {
    let path = format!("{}/profiles/h100-paper/{model}.yaml", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    serde_yaml::from_str(&text).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// A whole decode step.
pub(crate) fn step_ms(machine: &Profile, batch: u32, context: u32, loops: u32) -> f64 {
    let (rows, entries) = (machine.buckets.pad(batch), u64::from(batch) * u64::from(context));
    let boundary = machine.prelude.time_ms(rows, entries) + machine.coda.time_ms(rows, entries);
    boundary + f64::from(loops) * machine.core.time_ms(rows, entries)
}

/// The measurements, each with a relative error of the given standard deviation.
pub(crate) fn csv(machine: &Profile, loops: &[u32], timed: Timed, deviation: f64, seed: u64) -> String {
    let mut random = noise(seed);
    let mut text = "batch,context,loops,step_ms,stage,tokens\n".to_owned();
    for (batch, context) in grid() {
        for &loops in loops {
            let time_ms = measured(step_ms(machine, batch, context, loops), deviation, &mut random);
            let _ = writeln!(text, "{batch},{context},{loops},{time_ms:.6},step,");
        }
    }
    if timed == Timed::StepsAndStages {
        text += &stages(machine, deviation, &mut random);
    }
    text
}

fn stages(machine: &Profile, deviation: f64, random: &mut Pcg64) -> String {
    let mut text = String::new();
    let overhead_ms = machine.stage_overhead_us / 1e3;
    for (batch, context) in grid() {
        let entries = u64::from(batch) * u64::from(context);
        for (name, cost) in [("core", machine.core), ("prelude", machine.prelude), ("coda", machine.coda)] {
            let time_ms = cost.time_ms(machine.buckets.pad(batch), entries) + overhead_ms;
            let _ = writeln!(text, "{batch},{context},,{:.6},{name},", measured(time_ms, deviation, random));
        }
    }
    for tokens in [16_u32, 64, 256, 1024, 4096, 8192] {
        for context in [0_u32, 4096] {
            let time_ms = measured(machine.prefill.time_ms([(context, tokens)]), deviation, random);
            let _ = writeln!(text, "1,{context},,{time_ms:.6},prefill,{tokens}");
        }
    }
    text
}
