//! `sim explore`: what architectures that may not exist yet would cost on a datasheet's GPU, and what early exits would gain.

mod study;

use engine::architecture::Architecture;
use engine::profile::Profile;
use engine::scheduler::Mode;
use traces::ArrivalsConfig;
use traces::numbers::RequestCount;

use crate::parallel;
use crate::run::plan::{Plan, PlanError, Planned};
use crate::run::serve::{Discard, serve};
use crate::run::speed::Speed;
use crate::scenario::model::ModelChoice;
use crate::scenario::numbers::Reached;
use crate::scenario::{ProfileChoice, Scenario};

pub use study::study;

/// Layers before, in and behind the loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Split {
    /// Before the loop.
    pub prelude: u64,
    /// In the loop.
    pub core: u64,
    /// Behind the loop.
    pub coda: u64,
}

/// An architecture on a device, with what was simulated.
#[derive(Clone, Debug)]
pub struct Explored {
    /// The shapes.
    pub model: Architecture,
    /// The device's roofline.
    pub profile: Profile,
    /// S_dec at the mean depth of the scenario's exits.
    pub s_dec: f64,
    /// S_e2e with prefill's share in the full-depth run.
    pub s_e2e: f64,
    /// S_roof on the device.
    pub s_roof: Option<f64>,
    /// Mean exit depth of decoded tokens.
    pub mean_depth: f64,
    /// Name, mode and throughput over full depth's of every scheduler but full depth.
    pub speedups: Vec<(String, Mode, f64)>,
}

impl Explored {
    /// Some scheduler's speed-up is above S_e2e.
    pub fn is_above(&self) -> bool {
        self.speedups.iter().any(|(.., speedup)| reports::is_above(speedup / self.s_e2e))
    }
}

impl Split {
    /// Reads `2-4-2`; the core needs a layer.
    pub fn parse(text: &str) -> Result<Self, String> {
        let layers: Result<Vec<u64>, _> = text.split('-').map(str::parse).collect();
        let within = |layers: u64| layers <= Architecture::LAYERS_MAX;
        match layers.as_deref() {
            Ok(&[prelude, core, coda]) if core > 0 && [prelude, core, coda].iter().all(|layers| within(*layers)) => {
                Ok(Self { prelude, core, coda })
            }
            _ => Err(format!(
                "write a split as prelude-core-coda with at least one core layer, like 2-4-2; got `{text}`"
            )),
        }
    }

    /// A model with these layers in place of its own.
    pub fn of(self, model: &Architecture) -> Architecture {
        let Self { prelude, core, coda } = self;
        Architecture {
            name: format!("{} {prelude}-{core}-{coda}", model.name),
            prelude_layers: prelude,
            core_layers: core,
            coda_layers: coda,
            ..model.clone()
        }
    }
}

/// Every architecture on every GPU, offline, under the scenario's schedulers.
///
/// GPUs are named as in `profile: { roofline: .. }`; without any, the scenario's roofline or its profile's device is taken.
///
/// # Errors
/// The scenario cannot be run with one of the architectures or serves nothing, or there is no datasheet of a GPU.
pub fn explore(plan: &Plan, models: &[Architecture], gpus: &[String]) -> Result<Vec<Explored>, PlanError> {
    let profiles = profiles(plan, gpus);
    parallel::try_map(models.len() * profiles.len(), |index| {
        let (model, profile) = (&models[index / profiles.len()], &profiles[index % profiles.len()]);
        let scenario = Scenario {
            model: ModelChoice::Custom(model.clone()),
            profile: profile.clone(),
            variant: None,
            ..offline(plan)
        };
        let named = |error: PlanError| PlanError { reason: format!("{}: {}", model.name, error.reason), ..error };
        Plan::new(scenario).and_then(|plan| simulate(&plan)).map_err(named)
    })
}

fn profiles(plan: &Plan, gpus: &[String]) -> Vec<ProfileChoice> {
    let (own, bandwidth_share, compute_share) = match &plan.scenario.profile {
        ProfileChoice::Roofline { gpu, bandwidth_share, compute_share } => {
            (gpu.clone(), *bandwidth_share, *compute_share)
        }
        _ => (plan.profile.device.name.clone(), Reached::default(), Reached::default()),
    };
    let gpus = if gpus.is_empty() { vec![own] } else { gpus.to_vec() };
    gpus.into_iter().map(|gpu| ProfileChoice::Roofline { gpu, bandwidth_share, compute_share }).collect()
}

/// The same requests, all there at the start: speed-up is a ratio of throughputs.
fn offline(plan: &Plan) -> Scenario {
    let mut scenario = plan.scenario.clone();
    scenario.workload.arrivals = ArrivalsConfig::Offline;
    scenario.workload.requests = RequestCount::try_from(i64::from(plan.workload.requests())).ok();
    scenario
}

fn simulate(plan: &Plan) -> Result<Explored, PlanError> {
    let run = |planned: &Planned| {
        let Ok(recorder) = serve(plan, planned, &mut Discard);
        Speed::of(&recorder.metrics(), plan)
    };
    let base = run(&plan.baseline());
    // The bounds are those of the shallowest exits: a control at full depth may be among the schedulers.
    let mut bounds = base.against(&base, plan).ok_or_else(PlanError::serves_nothing)?;
    let mut mean_depth = f64::from(plan.model.r_max.0);
    let mut speedups = Vec::new();
    for planned in plan.schedulers.iter().filter(|planned| planned.config.mode != Mode::ContinuousBatching) {
        let speed = run(planned);
        let against = speed.against(&base, plan).ok_or_else(PlanError::serves_nothing)?;
        if against.s_dec > bounds.s_dec {
            (bounds, mean_depth) = (against, speed.mean_exit_depth);
        }
        speedups.push((planned.name.clone(), planned.config.mode, against.speedup));
    }
    Ok(Explored {
        model: plan.model.clone(),
        profile: plan.profile.clone(),
        s_dec: bounds.s_dec,
        s_e2e: bounds.s_e2e,
        s_roof: bounds.s_roof,
        mean_depth,
        speedups,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_split_is_three_numbers() {
        assert_eq!(Split::parse("2-4-2"), Ok(Split { prelude: 2, core: 4, coda: 2 }));
        for wrong in ["2-4", "0-0-0", "a-4-2", "2-4-2-1", "-1-4-2", "1-9999-1"] {
            assert!(Split::parse(wrong).is_err(), "{wrong}");
        }
    }
}
