//! From a protocol to runs whose every number is known: all checked before the first is made.

use std::collections::{BTreeMap, BTreeSet};
use std::thread;

use engine::scheduler::Mode;
use reports::Capacity;
use reports::validation::Load;
use traces::numbers::{RatePerS, RequestCount};
use traces::{ArrivalsConfig, ExitsConfig};

use super::protocol::{Protocol, ProtocolError, RunEntry};
use crate::live::{self, Engine};
use crate::run::capacity;
use crate::run::plan::{Plan, PlanError};
use crate::scenario::Scenario;
use crate::scenario::inputs::Inputs;

/// One run of a protocol, ready.
#[derive(Clone, Debug)]
pub struct PlannedRun {
    /// What the protocol says of it.
    pub entry: RunEntry,
    /// Offline all schedulers serve one workload; online each has a plan of its own, at its own rate.
    pub(super) parts: Vec<Part>,
    /// Online with an SLO: what each scheduler carries by the model, by name.
    pub(super) capacities: BTreeMap<String, Carries>,
}

/// What a scheduler carries by the model.
#[derive(Clone, Debug)]
pub(super) struct Carries {
    pub(super) capacity: Capacity,
    /// Where only physics costs time.
    pub(super) floor: Option<Capacity>,
}

/// Schedulers on one workload.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) plan: Plan,
    /// Online, what arrives.
    pub(super) load: Option<Load>,
}

impl PlannedRun {
    /// The group that it belongs to.
    pub(super) fn group(&self) -> &str {
        self.entry.group.as_ref().unwrap_or(&self.entry.name)
    }

    /// Requests arrive over time.
    pub(super) fn online(&self) -> bool {
        self.parts[0].plan.online()
    }
}

/// All runs of a protocol, for `engine` if they are to be measured.
///
/// # Errors
/// The first run that cannot be made, and the field at fault.
pub fn runs(protocol: &Protocol, engine: Option<&mut Engine>) -> Result<Vec<PlannedRun>, ProtocolError> {
    let mut planner = Planner { protocol, engine, capacities: BTreeMap::new() };
    if protocol.runs.is_empty() {
        return Err(ProtocolError { keys: vec!["runs".into()], reason: "name at least one run".into() });
    }
    for (index, entry) in protocol.runs.iter().enumerate() {
        if protocol.runs[..index].iter().any(|other| other.name == entry.name) {
            return Err(at_run(index, "name", format!("two runs are called `{}`", entry.name)));
        }
    }
    let runs = (0..protocol.runs.len()).map(|index| planner.run(index)).collect::<Result<Vec<_>, _>>()?;
    check_capacities(protocol, &runs)?;
    Ok(runs)
}

/// Every given capacity is some scheduler's.
fn check_capacities(protocol: &Protocol, runs: &[PlannedRun]) -> Result<(), ProtocolError> {
    let schedulers = runs.iter().flat_map(|run| &run.parts).flat_map(|part| &part.plan.schedulers);
    let names: BTreeSet<&str> = schedulers.map(|planned| planned.name.as_str()).collect();
    match protocol.capacity_per_s.keys().find(|name| !names.contains(name.as_str())) {
        None => Ok(()),
        Some(unknown) => Err(ProtocolError {
            keys: vec!["capacity_per_s".into(), unknown.clone()],
            reason: format!(
                "no run has a scheduler of this name; there are {}",
                names.into_iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
            ),
        }),
    }
}

/// What a protocol and its runs read.
pub fn inputs(protocol: &Protocol, runs: &[PlannedRun]) -> Inputs {
    let mut inputs = Inputs::default();
    [&protocol.path].into_iter().chain(&protocol.base).for_each(|path| inputs.add(path));
    runs.iter().flat_map(|run| &run.parts).for_each(|part| inputs.add_scenario(&part.plan.scenario));
    inputs
}

struct Planner<'a> {
    protocol: &'a Protocol,
    engine: Option<&'a mut Engine>,
    /// By the scenario that they are of: runs that differ in their rates only have them in common.
    capacities: BTreeMap<String, BTreeMap<String, Carries>>,
}

impl Planner<'_> {
    fn run(&mut self, index: usize) -> Result<PlannedRun, ProtocolError> {
        let entry = self.protocol.runs[index].clone();
        let scenario = self.protocol.scenario(index)?;
        let blame = |error: PlanError| self.protocol.blame(index, &error.path, error.reason);
        check(&scenario).map_err(blame)?;
        let plan = self.plan(scenario).map_err(blame)?;
        live::check(&plan).map_err(blame)?;
        if !plan.online() {
            if let Some(field) = entry.rate_share.map(|_| "rate_share").or(entry.window_s.map(|_| "window_s")) {
                return Err(at_run(index, field, "all requests of an offline run are there at its start".into()));
            }
            return Ok(PlannedRun { entry, parts: vec![Part { plan, load: None }], capacities: BTreeMap::new() });
        }
        let capacities = self.capacities(index, &plan)?;
        let parts = (0..plan.schedulers.len()).map(|scheduler| self.part(index, &plan, scheduler, &capacities));
        Ok(PlannedRun { parts: parts.collect::<Result<_, _>>()?, entry, capacities })
    }

    /// One scheduler of an online run, at its own rate.
    fn part(
        &mut self,
        index: usize,
        plan: &Plan,
        scheduler: usize,
        capacities: &BTreeMap<String, Carries>,
    ) -> Result<Part, ProtocolError> {
        let entry = &self.protocol.runs[index];
        let name = &plan.schedulers[scheduler].name;
        let capacity = capacities.get(name).map(|carries| &carries.capacity);
        let capacity_per_s = capacity.and_then(|capacity| capacity.requests_per_s);
        let given = self.protocol.capacity_per_s.get(name).map(|rate| rate.get());
        let rate_per_s = match entry.rate_share {
            None => capacity::rate(plan),
            Some(share) => {
                let Some(whole) = given.or(capacity_per_s) else {
                    let why = capacity.map_or("give the scenario an `slo`".into(), |capacity| {
                        format!("it {}{}", capacity.rates.claim(&capacity.slo), capacity.rates.remark())
                    });
                    let reason =
                        format!("the capacity of `{name}` is not known: {why}; or give the protocol `capacity_per_s`");
                    return Err(at_run(index, "rate_share", reason));
                };
                Some(share.0 * whole)
            }
        };
        let Some(rate_per_s) = rate_per_s else {
            let reason = "a live run at a rate needs arrivals with one: poisson or gamma";
            return Err(self.protocol.blame(index, "workload.arrivals", reason.into()));
        };
        let mut scenario = plan.scenario.clone();
        let workload = &mut scenario.workload;
        if let Some(window) = entry.window_s {
            let count = RequestCount::try_from((rate_per_s * window.get()).round().max(1.0) as i64)
                .map_err(|error| at_run(index, "window_s", error.to_string()))?;
            workload.requests = Some(match self.protocol.fields.quick {
                true => workload.requests.map_or(count, |most| most.min(count)),
                false => count,
            });
        }
        let Some(requests) = workload.requests else {
            let reason =
                "give it `window_s`, or set `workload.requests`: both sides must serve the same number of requests";
            return Err(at_run(index, "name", reason.into()));
        };
        let rate = RatePerS::try_from(rate_per_s).map_err(|error| at_run(index, "rate_share", error.to_string()))?;
        if let ArrivalsConfig::Poisson { rate_per_s, duration_s }
        | ArrivalsConfig::Gamma { rate_per_s, duration_s, .. } = &mut workload.arrivals
        {
            (*rate_per_s, *duration_s) = (rate, None);
        }
        let mut plan = self.plan(scenario).map_err(|error| self.protocol.blame(index, &error.path, error.reason))?;
        plan.schedulers = vec![plan.schedulers.swap_remove(scheduler)];
        let load = Load {
            rate_per_s,
            requests: requests.get(),
            capacity_per_s: capacity_per_s.or(given),
            predicted_carried: None,
            measured_carried: None,
        };
        Ok(Part { plan, load: Some(load) })
    }

    fn plan(&mut self, scenario: Scenario) -> Result<Plan, PlanError> {
        match &mut self.engine {
            Some(engine) => engine.plan(scenario),
            None => Plan::new(scenario),
        }
    }

    /// By the model, over the arrivals' `duration_s`: a count of requests would be over the sooner the higher the rate.
    fn capacities(&mut self, index: usize, plan: &Plan) -> Result<BTreeMap<String, Carries>, ProtocolError> {
        let mut scenario = plan.scenario.clone();
        if let ArrivalsConfig::Poisson { duration_s: Some(_), .. } | ArrivalsConfig::Gamma { duration_s: Some(_), .. } =
            scenario.workload.arrivals
        {
            scenario.workload.requests = None;
        }
        let plan = self.plan(scenario).map_err(|error| self.protocol.blame(index, &error.path, error.reason))?;
        Ok(self.capacities.entry(plan.yaml()).or_insert_with(|| carries(&plan)).clone())
    }
}

/// What each scheduler of a plan carries, by name.
fn carries(plan: &Plan) -> BTreeMap<String, Carries> {
    let (all, mut at_floor) = thread::scope(|scope| {
        let at_floor = plan.scenario.output.floor.then(|| scope.spawn(|| capacity::all(&plan.at_floor())));
        let all = capacity::all(plan);
        (all, at_floor.map(|at_floor| at_floor.join().expect("a run does not panic")).unwrap_or_default())
    });
    all.into_iter()
        .map(|(name, capacity)| (name.clone(), Carries { capacity, floor: at_floor.remove(&name) }))
        .collect()
}

/// What only a scenario of its own can have.
fn check(scenario: &Scenario) -> Result<(), PlanError> {
    let fault = |path: &str, reason: &str| Err(PlanError { path: path.into(), reason: reason.into() });
    if let ExitsConfig::Gate(_) = scenario.exits {
        let reason = "a protocol predicts before it measures, so exits must be known: run `sim --live` with the gate once, and replay \
                      the exits that it records";
        return fault("exits", reason);
    }
    if scenario.sweep.is_some() {
        return fault("sweep", "a protocol's runs are its points: name them under `runs`");
    }
    Ok(())
}

/// Whether a scheduler is what the others' speed-ups are set against.
pub(super) fn is_baseline(plan: &Plan, scheduler: usize) -> bool {
    plan.schedulers[scheduler].config.mode == Mode::ContinuousBatching
}

fn at_run(index: usize, field: &str, reason: String) -> ProtocolError {
    ProtocolError { keys: vec!["runs".into(), index.to_string(), field.into()], reason }
}
