//! What an executor is made for.

use std::sync::Arc;

use engine::architecture::Architecture;
use engine::executor::ExitSource;
use engine::live::{LiveConfig, LiveExits};
use engine::request::RequestId;
use engine::scheduler::{Finish, KvConfig, Mode, Overlap, Prefill, Pressure, SchedulerConfig};
use engine::units::Depth;

use super::plan::MeasurementPlan;

/// Prompt tokens in a batch that fills the cache.
pub(super) const FILL_TOKENS: u32 = 2048;

/// Every token runs all loops.
struct FullDepth(Depth);

impl ExitSource for FullDepth {
    fn exit_depth(&self, _: RequestId, _: u32) -> Depth {
        self.0
    }
}

/// What an executor must be able to hold for sequences of the given lengths, at a full depth that may differ from the model's.
pub(super) fn live_config(
    plan: &MeasurementPlan,
    model: &Architecture,
    held_tokens: &[u32],
    plane_blocks: u32,
    depth: Depth,
) -> LiveConfig {
    let slots = held_tokens.len() as u32;
    let scheduler = SchedulerConfig {
        mode: Mode::NoRefill,
        overlap: Overlap::Synchronous,
        finish: Finish::Length,
        max_num_seqs: slots,
        max_num_batched_tokens: FILL_TOKENS.max(plan.max_prefill_tokens),
        min_free_slots: 1,
        prefill: Prefill::First,
        max_context_tokens: held_tokens.iter().copied().max().unwrap_or(1),
        r_max: depth,
        r_min: depth,
        kv: KvConfig {
            layout: plan.layout,
            blocks: plane_blocks * u32::from(plan.layout.planes(depth)),
            block_tokens: plan.block_tokens,
            headroom_blocks: 0,
            pressure: Pressure::Reserve,
            boundary_layers: model.prelude_layers + model.coda_layers > 0,
            prefix_cache: None,
        },
    };
    LiveConfig::new(scheduler, LiveExits::Replay(Arc::new(FullDepth(depth))))
}
