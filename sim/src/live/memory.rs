//! Whether this machine's memory holds a run on its cores: every page of the KV pool is written before the first request, and
//! an exit criterion may keep logits for every sequence.

use crate::run::plan::{Plan, PlanError};

/// Checks that the pool fits into what is free.
///
/// # Errors
/// It does not, by what the system says; where it says nothing, nothing is checked.
pub(super) fn check(plan: &Plan) -> Result<(), PlanError> {
    let Some(free_bytes) = free_bytes() else { return Ok(()) };
    let (model, kv) = (&plan.model, &plan.scenario.kv);
    let planes = f64::from(kv.layout.planes(model.r_max));
    let per_token = model.core_kv_bytes() as f64 + model.boundary_kv_bytes() as f64 / planes;
    let per_block = f64::from(kv.block_tokens.0) * per_token;
    let kept = plan.criterion().map_or(0, |criterion| criterion.kept_bytes(model));
    let kept_bytes = kept as f64 * f64::from(plan.scenario.scheduler.max_num_seqs.0);
    let needed_bytes = f64::from(kv.blocks.0) * per_block;
    if needed_bytes + kept_bytes <= free_bytes {
        return Ok(());
    }
    if kept_bytes > free_bytes {
        let reason = format!(
            "the logits that the exit criterion keeps would take {:.1} GB, and this machine has {:.1} GB free: lower it",
            kept_bytes / 1e9,
            free_bytes / 1e9
        );
        return Err(PlanError { path: "scheduler.max_num_seqs".into(), reason });
    }
    let free_bytes = free_bytes - kept_bytes;
    let reason = format!(
        "the KV pool would take {:.1} GB, and this machine has {:.1} GB free: give it at most {:.0} blocks",
        needed_bytes / 1e9,
        free_bytes / 1e9,
        (free_bytes / per_block).floor()
    );
    Err(PlanError { path: "kv.blocks".into(), reason })
}

/// Memory that can be had without swapping, as Linux tells it.
fn free_bytes() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib = line.trim().strip_suffix("kB")?.trim().parse::<f64>().ok()?;
    Some(1024.0 * kib)
}
