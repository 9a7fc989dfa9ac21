//! What the engine fixes and the model must copy: the row counts that have graphs, and how many KV blocks there are.

use engine::live::cuda::{self, KvBudget};
use engine::profile::Buckets;
use engine::scheduler::Mode;

use super::device::{Engine, LiveDevice};
use super::memory;
use crate::run::plan::{self, Plan, PlanError};
use crate::scenario::Scenario;
use crate::scenario::numbers::{Count, Share};

impl LiveDevice {
    /// The row counts that it has graphs for; `None` leaves the profile's, which has no other source on a CPU.
    fn buckets(self) -> Option<Buckets> {
        (self == Self::Cuda).then(cuda::row_buckets)
    }
}

impl Engine {
    /// A scenario's plan for a live run: the model and the engine have the same graphs and the same blocks.
    ///
    /// Opens the device and prepares the model only for a scenario with `live.kv_fraction`.
    ///
    /// # Errors
    /// The first field that cannot be used.
    pub fn plan(&mut self, mut scenario: Scenario) -> Result<Plan, PlanError> {
        plan::model(&scenario)?;
        if let Some(share) = scenario.live.kv_fraction {
            let blocks = self.blocks(&scenario, share);
            scenario.kv.blocks = blocks.map_err(|reason| PlanError { path: "live.kv_fraction".into(), reason })?;
        }
        let plan = Plan::for_live(scenario, self.device.buckets())?;
        if self.device == LiveDevice::Cpu {
            memory::check(&plan)?;
        }
        Ok(plan)
    }

    /// The core blocks that fit into a share of the device's free memory.
    fn blocks(&mut self, scenario: &Scenario, Share(share): Share) -> Result<Count, String> {
        if self.device == LiveDevice::Cpu {
            return Err("only a GPU's memory is a measure of how many blocks fit: give kv.blocks".into());
        }
        // Weights first, and nothing else: what they leave free is shared out.
        self.prepare(scenario).map_err(|error| error.to_string())?;
        self.clear();
        let model = scenario.model.architecture().map_err(|error| error.to_string())?;
        let shape = (scenario.kv.layout, model.r_max, scenario.kv.block_tokens.0);
        let gpu = self.gpu().map_err(|error| error.to_string())?;
        let kept = plan::criterion(scenario, &model).map_or(0, |criterion| criterion.kept_bytes(&model));
        let kept_bytes = kept * u64::from(scenario.scheduler.max_num_seqs.0);
        KvBudget::Fraction(share).blocks(gpu, &model, shape, kept_bytes).map(Count).map_err(|error| error.to_string())
    }
}

/// Checks that a plan can be run live: on one engine, and offline with what its speed-ups are set against.
///
/// # Errors
/// It has replicas, or no full-depth continuous batching.
pub fn check(plan: &Plan) -> Result<(), PlanError> {
    if plan.scenario.replicas.is_some() {
        let reason = "a live run has one engine: leave the replicas out; `scripts/replicas` runs several servers";
        return Err(PlanError { path: "replicas".into(), reason: reason.into() });
    }
    if plan.online() || plan.schedulers.iter().any(|planned| planned.config.mode == Mode::ContinuousBatching) {
        return Ok(());
    }
    let reason =
        "a live comparison needs `- mode: continuous_batching` among its schedulers, to measure speed-ups against";
    Err(PlanError { path: "compare".into(), reason: reason.into() })
}
