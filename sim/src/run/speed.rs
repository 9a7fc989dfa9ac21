//! A run's speed against full depth's and the bounds.

use engine::metrics::{RunMetrics, Work};
use engine::scheduler::Mode;
use reports::Bounds;

use super::plan::Plan;
use super::serve::{Discard, serve};

/// Each scheduler's run against full-depth continuous batching, which is run on the modelled device if it is not among them.
///
/// Empty if that served nothing, since nothing can be set against it.
pub(crate) fn bounds(plan: &Plan, metrics: &[RunMetrics]) -> Vec<Bounds> {
    let found = plan.schedulers.iter().position(|planned| planned.config.mode == Mode::ContinuousBatching);
    let baseline = match found {
        Some(index) => metrics[index].clone(),
        None => {
            let Ok(recorder) = serve(plan, &plan.baseline(), &mut Discard);
            recorder.metrics()
        }
    };
    let baseline = Speed::of(&baseline, plan);
    let against = |(index, run)| {
        let bounds = Speed::of(run, plan).against(&baseline, plan)?;
        Some(Bounds { baseline: found == Some(index), ..bounds })
    };
    metrics.iter().enumerate().filter_map(against).collect()
}

/// What a comparison with full depth reads of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Speed {
    throughput_tokens_per_s: f64,
    /// What the profile's device could not exceed with the same tokens; `None` if no limit of it is known.
    roof_tokens_per_s: Option<f64>,
    steady_tokens_per_s: Option<f64>,
    pub(crate) mean_exit_depth: f64,
    prefill_share: f64,
}

impl Speed {
    pub(crate) fn of(run: &RunMetrics, plan: &Plan) -> Self {
        let scheduler = &plan.scenario.scheduler;
        let limits = (scheduler.max_num_seqs.0, scheduler.max_num_batched_tokens.0);
        let least_s = |work: Work| engine::bounds::least_time_s(&work, &plan.model, &plan.profile.device, limits);
        Self {
            roof_tokens_per_s: run.work.map(least_s).filter(|&s| s > 0.0).map(|s| run.output_tokens as f64 / s),
            throughput_tokens_per_s: run.throughput_tokens_per_s,
            steady_tokens_per_s: run.steady.map(|window| window.throughput_tokens_per_s),
            mean_exit_depth: run.mean_exit_depth,
            prefill_share: run.prefill_share,
        }
    }

    /// Against the full-depth continuous-batching run of the same requests; `None` if that served nothing.
    pub(crate) fn against(&self, baseline: &Self, plan: &Plan) -> Option<Bounds> {
        if baseline.throughput_tokens_per_s == 0.0 {
            return None;
        }
        let speedup = self.throughput_tokens_per_s / baseline.throughput_tokens_per_s;
        let steady = self.steady_tokens_per_s.zip(baseline.steady_tokens_per_s);
        // A run without decoded tokens has no exits to gain from.
        let depth = if self.mean_exit_depth > 0.0 { self.mean_exit_depth } else { f64::from(plan.model.r_max.0) };
        let s_dec = engine::bounds::s_dec(&plan.model, depth);
        let s_e2e = engine::bounds::s_e2e(s_dec, baseline.prefill_share);
        Some(Bounds {
            baseline: false,
            speedup,
            steady_speedup: steady.map(|(run, base)| run / base),
            s_dec,
            s_e2e,
            s_roof: self.roof_tokens_per_s.map(|roof| roof / baseline.throughput_tokens_per_s),
            realised_share: speedup / s_e2e,
        })
    }
}
