//! `sim tune`: which mode, W, K, S and share of prompts serve a workload best, by trying a coarse grid and then the neighbours
//! of the best.
//!
//! Every candidate serves the same requests with the same exits, so differences are differences of the schedulers.

mod explain;

use engine::metrics::RunMetrics;
use reports::{Cell, Grid, Study};
use serde::Serialize;
use traces::ArrivalsConfig;
use traces::numbers::RequestCount;

use crate::parallel;
use crate::run::capacity;
use crate::run::plan::{Plan, PlanError};
use crate::run::serve::{Discard, serve};
use crate::scenario::numbers::Count;
use crate::scenario::{ModeName, PrefillSettings, Scenario, SchedulerEntry};

pub use explain::explain;

/// What is maximised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Objective {
    /// Output tokens per second with all requests there at the start.
    Throughput,
    /// Requests per second that keep the SLO, at the scenario's arrivals.
    Goodput,
}

/// A scheduler's settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Candidate {
    /// Which batches are formed.
    pub mode: ModeName,
    /// W.
    pub max_num_seqs: u32,
    /// K, for `refill`.
    pub min_coda_batch: Option<u32>,
    /// S.
    pub min_free_slots: u32,
    /// What prompts leave to decode steps.
    pub prefill: PrefillSettings,
}

/// A candidate and its run.
#[derive(Clone, Debug)]
pub struct Trial {
    /// The settings.
    pub candidate: Candidate,
    /// What was measured.
    pub metrics: RunMetrics,
    /// The plan that was run.
    pub plan: Plan,
}

/// Widths of the coarse grid.
const WIDTHS: [u32; 7] = [8, 16, 32, 64, 128, 256, 512];

/// Rounds of trying the best candidate's neighbours.
const ROUNDS: u32 = 4;

/// Candidates whose scores are this close are as good as each other; then the lower normalized latency wins.
const EQUAL: f64 = 1e-3;

/// Tries candidates; the best comes first, the others follow in the order in which they were tried.
///
/// # Errors
/// Goodput needs an SLO and arrivals over time; a scenario can also refuse every candidate, or no candidate scores at all.
pub fn tune(plan: &Plan, objective: Objective) -> Result<Vec<Trial>, PlanError> {
    let scenario = prepare(plan, objective)?;
    let coarse = WIDTHS.iter().flat_map(|&w| {
        let of = |mode| Candidate {
            mode,
            max_num_seqs: w,
            min_coda_batch: None,
            min_free_slots: (w / 8).max(1),
            prefill: plan.scenario.scheduler.prefill,
        };
        [ModeName::ContinuousBatching, ModeName::NoRefill, ModeName::AdaptiveRefill].map(of)
    });
    let mut trials = try_all(&scenario, &coarse.collect::<Vec<_>>())?;
    for _ in 0..ROUNDS {
        let best = trials[best(&trials, objective)].candidate;
        let tried = |candidate: &Candidate| trials.iter().any(|trial| trial.candidate == *candidate);
        let mut new: Vec<Candidate> = neighbours(best).into_iter().filter(|candidate| !tried(candidate)).collect();
        new.dedup();
        if new.is_empty() {
            break;
        }
        trials.extend(try_all(&scenario, &new)?);
    }
    let best = best(&trials, objective);
    let Trial { metrics, .. } = &trials[best];
    if metrics.requests.finished == 0 {
        return Err(PlanError::serves_nothing());
    }
    if score(&trials[best], objective) == 0.0 {
        let reason = "no setting that was tried keeps it for a single request: loosen it, or lower the arrivals' rate";
        return Err(PlanError { path: "slo".into(), reason: reason.into() });
    }
    trials[..=best].rotate_right(1);
    Ok(trials)
}

/// The score that is maximised.
pub fn score(trial: &Trial, objective: Objective) -> f64 {
    match objective {
        Objective::Throughput => trial.metrics.throughput_tokens_per_s,
        Objective::Goodput => trial.metrics.goodput.map_or(0.0, |goodput| goodput.requests_per_s),
    }
}

/// The candidates as a table, best first, with the choice as `summary.json`.
pub fn study(trials: &[Trial], objective: Objective) -> Study<Candidate> {
    let unit = match objective {
        Objective::Throughput => "tokens/s",
        Objective::Goodput => "good requests/s",
    };
    let mut grid = Grid::new([
        "mode",
        "W",
        "K",
        "S",
        "prefill",
        unit,
        "of best, %",
        "within SLO, %",
        "normalized mean, ms",
        "mean core batch",
    ]);
    let best = score(&trials[0], objective);
    for trial in trials {
        let Candidate { mode, max_num_seqs, min_coda_batch, min_free_slots, prefill } = trial.candidate;
        let score = score(trial, objective);
        grid.push(vec![
            Cell::text(mode.name()),
            Cell::text(max_num_seqs.to_string()),
            min_coda_batch.map_or(Cell::Missing, |k| Cell::text(k.to_string())),
            Cell::text(min_free_slots.to_string()),
            Cell::text(prefill_name(prefill)),
            score.into(),
            (100.0 * score / best).into(),
            trial.metrics.goodput.map(|goodput| 100.0 * goodput.share).into(),
            (trial.metrics.requests.finished > 0).then_some(1e3 * trial.metrics.normalized.mean).into(),
            trial.metrics.mean_core_batch().into(),
        ]);
    }
    Study {
        name: "tune",
        grid,
        summary: trials[0].candidate,
        scenario_yaml: trials[0].plan.yaml(),
        figures: Vec::new(),
    }
}

/// The scenario that candidates are put into.
fn prepare(plan: &Plan, objective: Objective) -> Result<Scenario, PlanError> {
    let fault = |path: &str, reason: &str| Err(PlanError { path: path.into(), reason: reason.into() });
    let mut scenario = plan.scenario.clone();
    match objective {
        Objective::Goodput if scenario.slo.is_none() => {
            return fault("slo", "goodput needs limits, such as `slo: { ttft_ms: 2000 }`");
        }
        Objective::Goodput if capacity::rate(plan).is_none() => {
            return fault("workload.arrivals", "goodput needs arrivals with a rate: poisson or gamma");
        }
        Objective::Goodput => {}
        Objective::Throughput => {
            // The same requests, however they were to arrive.
            scenario.workload.arrivals = ArrivalsConfig::Offline;
            scenario.workload.requests = RequestCount::try_from(i64::from(plan.workload.requests())).ok();
        }
    }
    Ok(scenario)
}

/// What differs from a candidate in one setting.
fn neighbours(of: Candidate) -> Vec<Candidate> {
    let Candidate { max_num_seqs: w, min_free_slots: s, .. } = of;
    let width = |w: u32| Candidate {
        max_num_seqs: w,
        min_free_slots: s.min(w),
        min_coda_batch: of.min_coda_batch.map(|k| k.min(w)),
        ..of
    };
    let mut all = vec![width((w - w / 4).max(1)), width(w + w / 2)];
    all.extend([1, (w / 4).max(1), (w / 2).max(1)].map(|s| Candidate { min_free_slots: s, ..of }));
    let shares = [1, 2, 4].map(|batches| PrefillSettings::Share(Count(batches)));
    let chunks = [256, 1024].map(|tokens| PrefillSettings::Interleave(Count(tokens)));
    let prefills = [PrefillSettings::First].into_iter().chain(shares).chain(chunks);
    all.extend(prefills.map(|prefill| Candidate { prefill, ..of }));
    if matches!(of.mode, ModeName::Refill | ModeName::AdaptiveRefill) {
        let fixed = |k| Candidate { mode: ModeName::Refill, min_coda_batch: Some(k), ..of };
        all.extend([1, (w / 4).max(1), (w / 2).max(1), w].map(fixed));
        all.push(Candidate { mode: ModeName::AdaptiveRefill, min_coda_batch: None, ..of });
    }
    all
}

fn try_all(scenario: &Scenario, candidates: &[Candidate]) -> Result<Vec<Trial>, PlanError> {
    parallel::try_map(candidates.len(), |index| {
        let candidate = candidates[index];
        let plan = Plan::new(candidate.put_into(scenario))?;
        let Ok(recorder) = serve(&plan, &plan.schedulers[0], &mut Discard);
        Ok(Trial { candidate, metrics: recorder.metrics(), plan })
    })
}

fn best(trials: &[Trial], objective: Objective) -> usize {
    let highest = trials.iter().map(|trial| score(trial, objective)).fold(0.0, f64::max);
    let good = (0..trials.len()).filter(|&index| score(&trials[index], objective) >= (1.0 - EQUAL) * highest);
    let latency = |index: &usize| trials[*index].metrics.normalized.mean;
    good.min_by(|one, other| latency(one).total_cmp(&latency(other))).expect("the highest is among the good")
}

/// As it stands in a scenario.
fn prefill_name(prefill: PrefillSettings) -> String {
    match prefill {
        PrefillSettings::First => "first".into(),
        PrefillSettings::Share(Count(batches)) => format!("{{ share: {batches} }}"),
        PrefillSettings::Interleave(Count(tokens)) => format!("{{ interleave: {tokens} }}"),
    }
}

impl Candidate {
    /// The scenario with these settings as its only scheduler.
    fn put_into(self, scenario: &Scenario) -> Scenario {
        let mut scenario = scenario.clone();
        scenario.scheduler.max_num_seqs = Count(self.max_num_seqs);
        scenario.scheduler.min_free_slots = Some(Count(self.min_free_slots));
        scenario.scheduler.prefill = self.prefill;
        let min_coda_batch = self.min_coda_batch.map(Count);
        scenario.compare = vec![SchedulerEntry { min_coda_batch, ..SchedulerEntry::of(self.mode) }];
        scenario
    }

    /// The settings as they stand in a scenario.
    pub fn yaml(&self) -> String {
        let k = self.min_coda_batch.map_or_else(String::new, |k| format!("\n    min_coda_batch: {k}"));
        format!(
            "scheduler:\n  max_num_seqs: {}\n  min_free_slots: {}\n  prefill: {}\ncompare:\n  - mode: {}{k}\n",
            self.max_num_seqs,
            self.min_free_slots,
            prefill_name(self.prefill),
            self.mode.name(),
        )
    }
}
