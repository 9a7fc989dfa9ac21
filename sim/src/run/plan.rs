//! From a scenario to what is run: every default filled in, every contradiction found.

use engine::architecture::Architecture;
use engine::layout::Layout;
use engine::metrics::Slo;
use engine::models::criterion::Criterion;
use engine::models::gate::GateError;
use engine::profile::{Buckets, DeviceSpec, Profile};
use engine::scheduler::{ConfigError, Finish, KvConfig, Mode, Overlap, SchedulerConfig};
use engine::units::Depth;
use traces::{AllowedExits, ArrivalsConfig, Exits, ExitsConfig, TracesError, Workload};

use crate::run::horizon;
use crate::run::shipped;
use crate::scenario::numbers::{Count, Reached, Share};
use crate::scenario::{FinishSettings, ModeName, ProfileChoice, Scenario, SchedulerEntry};

/// A scenario, ready to run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// With every default that was filled in.
    pub scenario: Scenario,
    /// The model's shapes.
    pub model: Architecture,
    /// The latency model, variant applied.
    pub profile: Profile,
    /// The requests and their exits.
    pub workload: Workload,
    /// The schedulers to compare.
    pub schedulers: Vec<Planned>,
}

/// One scheduler, ready to run.
#[derive(Clone, Debug)]
pub struct Planned {
    /// Its name in reports, unique in the plan.
    pub name: String,
    /// What the scheduler is told.
    pub config: SchedulerConfig,
    /// What the executor replays.
    pub exits: Exits,
    /// No token leaves early, whatever exits or gate the scenario has.
    pub full_depth: bool,
}

/// A scenario whose fields contradict each other, or name something that is not there.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {reason}")]
pub struct PlanError {
    /// The field at fault, dotted.
    pub path: String,
    /// What is wrong and what to change.
    pub reason: String,
}

impl PlanError {
    /// Of a study that would compare nothing with nothing.
    pub(crate) fn serves_nothing() -> Self {
        fault(
            "kv.blocks",
            "no request was served, since none can ever fit: raise it or scheduler.max_context_tokens, or leave long requests \
             out (workload.max_total_tokens)",
        )
    }
}

impl Plan {
    /// Fills in defaults and checks the scenario as a whole.
    ///
    /// # Errors
    /// The first field that cannot be used.
    pub fn new(scenario: Scenario) -> Result<Self, PlanError> {
        if let ExitsConfig::Gate(_) = scenario.exits {
            let reason =
                "a gate decides by the model's own numbers: run with --live, or replay exits that were recorded live";
            return Err(fault("exits", reason));
        }
        Self::for_live(scenario, None)
    }

    /// The same for a live run, in which the model's gate may decide, on a device that has graphs for `buckets` of rows; the
    /// profile's otherwise.
    ///
    /// # Errors
    /// The first field that cannot be used.
    pub fn for_live(mut scenario: Scenario, buckets: Option<Buckets>) -> Result<Self, PlanError> {
        let model = model(&scenario)?;
        let mut profile = profile(&scenario, &model)?;
        profile.buckets = buckets.unwrap_or(profile.buckets);
        let workload = workload(&scenario, &model).map_err(|error| fault(blame(&error), error))?;
        if let Some(slo) = &scenario.slo {
            check_slo(slo)?;
        }
        fill(&mut scenario, &model)?;
        let schedulers = schedulers(&scenario, &model, &profile, &workload)?;
        let plan = Self { scenario, model, profile, workload, schedulers };
        horizon::check(&plan)?;
        Ok(plan)
    }

    /// The same schedulers on the requests and exits of another seed.
    ///
    /// # Errors
    /// That seed gives no requests.
    pub fn with_seed(&self, seed: u64) -> Result<Self, PlanError> {
        let mut plan = Self::new(Scenario { seed, ..self.scenario.clone() })?;
        // Some may have been left out.
        plan.schedulers.retain(|planned| self.schedulers.iter().any(|kept| kept.name == planned.name));
        Ok(plan)
    }

    /// The seeds of the scenario's repeats, its own first.
    pub fn seeds(&self) -> Vec<u64> {
        (0..self.scenario.repeats.0).map(|repeat| self.scenario.seed.wrapping_add(repeat.into())).collect()
    }

    /// Requests arrive over time.
    pub fn online(&self) -> bool {
        !matches!(self.scenario.workload.arrivals, ArrivalsConfig::Offline)
    }

    /// The scenario's requests, built anew.
    ///
    /// # Errors
    /// Those of the workload.
    pub fn requests(&self) -> Result<Workload, TracesError> {
        workload(&self.scenario, &self.model)
    }

    /// The resolved scenario.
    pub fn yaml(&self) -> String {
        serde_yaml::to_string(&self.scenario).expect("a scenario is YAML")
    }

    /// What a live run's tokens are judged by after every loop, if that decides when they leave.
    pub fn criterion(&self) -> Option<Criterion> {
        criterion(&self.scenario, &self.model)
    }

    /// The limits of latency, if the scenario has any.
    pub fn slo(&self) -> Option<Slo> {
        self.scenario.slo
    }

    /// Full-depth continuous batching of the same requests: what speed-ups are measured against.
    pub fn baseline(&self) -> Planned {
        let config = SchedulerConfig { mode: Mode::ContinuousBatching, ..self.schedulers[0].config };
        Planned {
            name: "continuous batching".into(),
            config,
            exits: Exits::FullDepth(self.model.r_max),
            full_depth: true,
        }
    }

    /// The plan on the same device without overheads: weights and KV over bandwidth, FLOPs over throughput.
    pub fn at_floor(&self) -> Self {
        Self { profile: Profile::roofline(&self.profile.device, &self.model), ..self.clone() }
    }
}

pub(crate) fn fault(path: impl Into<String>, reason: impl ToString) -> PlanError {
    PlanError { path: path.into(), reason: reason.to_string() }
}

/// What a live run's tokens are judged by after every loop, if that decides when they leave.
pub(crate) fn criterion(scenario: &Scenario, model: &Architecture) -> Option<Criterion> {
    match &scenario.exits {
        ExitsConfig::Gate(gate) => gate.criterion(model).ok(),
        _ => None,
    }
}

/// The model's shapes, checked.
pub(crate) fn model(scenario: &Scenario) -> Result<Architecture, PlanError> {
    let model = scenario.model.architecture().map_err(|error| fault("model.folder", error))?;
    model.check().map_err(|error| fault(format!("model.custom.{}", error.field), error.reason))?;
    Ok(model)
}

fn workload(scenario: &Scenario, model: &Architecture) -> Result<Workload, TracesError> {
    let allowed = AllowedExits { family: model.family, min: r_min(scenario, model), max: model.r_max };
    let workload = Workload::new(&scenario.workload, &scenario.exits, allowed, scenario.seed)?;
    Ok(match scenario.scheduler.finish {
        FinishSettings::Length => workload,
        FinishSettings::Eos { max_output_tokens } => workload.with_max_output_tokens(Some(max_output_tokens.0)),
    })
}

fn check_slo(slo: &Slo) -> Result<(), PlanError> {
    if let Some((field, limit)) = slo.limits().find(|(_, limit)| limit.is_nan() || *limit <= 0.0) {
        return Err(fault(format!("slo.{field}"), format!("a limit must be greater than zero, got {limit}")));
    }
    if slo.limits().next().is_none() {
        return Err(fault(
            "slo",
            "set at least one of ttft_ms, tpot_ms, e2e_ms and normalized_ms, for requests or under mean, p50, p90, p95 or p99",
        ));
    }
    if !(slo.attainment > 0.0 && slo.attainment <= 1.0) {
        let reason = format!("a share of requests must be above 0 and at most 1, got {}", slo.attainment);
        return Err(fault("slo.attainment", reason));
    }
    Ok(())
}

/// The field that a workload's error is about.
fn blame(error: &TracesError) -> &'static str {
    use TracesError as E;
    match error {
        E::UnknownPreset { .. } | E::PresetFamily { .. } | E::TableSum { .. } | E::TableDepthZero | E::Depth { .. } => {
            "exits"
        }
        E::NeedsFile { what } if what.starts_with("exits") => "exits",
        E::NeedsFile { what: "workload.scheduler" } | E::UnknownScheduler { .. } | E::NoSchedulers { .. } => {
            "workload.scheduler"
        }
        E::NeedsFile { .. } | E::TooMany { .. } | E::TooLate { .. } | E::NoRequests => "workload.arrivals",
        E::Filter { .. } => "workload.max_total_tokens",
        E::NoLengths | E::Endless | E::Number { .. } => "workload",
        _ => "workload.file",
    }
}

/// The shallowest exit that the scenario can work with.
fn r_min(scenario: &Scenario, model: &Architecture) -> Depth {
    match (scenario.scheduler.overlap, scenario.kv.layout) {
        (Overlap::Lookahead, _) => model.r_min,
        (_, Layout::FirstThenShared) => Depth(2).min(model.r_max),
        _ => Depth::FIRST,
    }
}

fn profile(scenario: &Scenario, model: &Architecture) -> Result<Profile, PlanError> {
    let profile = match &scenario.profile {
        choice @ (ProfileChoice::H100Paper | ProfileChoice::H200) => {
            let text = shipped::profile(choice, &model.name).map_err(|reason| fault("profile", reason))?;
            crate::scenario::load::parse(text)
                .map_err(|error| fault("profile", crate::scenario::load::worded(&error)))?
        }
        ProfileChoice::File(path) => {
            let text = std::fs::read_to_string(path)
                .map_err(|error| fault("profile.file", format!("{}: {error}", path.display())))?;
            crate::scenario::load::parse(&text).map_err(|error| {
                fault("profile.file", format!("{}: {}", path.display(), crate::scenario::load::worded(&error)))
            })?
        }
        ProfileChoice::Roofline { gpu, bandwidth_share: Reached(bandwidth), compute_share: Reached(compute) } => {
            let mut device = DeviceSpec::datasheet(gpu).ok_or_else(|| {
                let known: Vec<_> = DeviceSpec::datasheets().collect();
                fault(
                    "profile.roofline.gpu",
                    format!("there is no datasheet of `{gpu}`; there are {}", known.join(", ")),
                )
            })?;
            device.bandwidth_gb_per_s *= bandwidth;
            device.compute_tflops *= compute;
            Profile::roofline(&device, model)
        }
    };
    profile.check().map_err(|error| fault("profile", error))?;
    if profile.model != model.name {
        return Err(fault("profile", format!("it is for {}, and the model is {}", profile.model, model.name)));
    }
    let Some(name) = &scenario.variant else { return Ok(profile) };
    let variant = profile.variants.get(name).ok_or_else(|| {
        let known: Vec<_> = profile.variants.keys().map(String::as_str).collect();
        let known = if known.is_empty() { "none".into() } else { known.join(", ") };
        fault("variant", format!("the profile {} has no variant `{name}`; it has {known}", profile.name))
    })?;
    Ok(profile.with(variant))
}

/// Writes the defaults that depend on other fields into the scenario.
fn fill(scenario: &mut Scenario, model: &Architecture) -> Result<(), PlanError> {
    scenario.live.weights = Some(scenario.weights());
    let initial_state = scenario.model.initial_state().map_err(|error| fault("model.folder", error))?;
    scenario.live.initial_state.get_or_insert(initial_state);
    if let ExitsConfig::Gate(gate) = &mut scenario.exits {
        let at_fault = |error: GateError| fault(format!("exits.gate.{}", error.field()), error);
        let criterion = gate.criterion(model).map_err(at_fault)?;
        gate.threshold = Some(gate.threshold_of(criterion).map_err(at_fault)?);
    }
    let w = scenario.scheduler.max_num_seqs.0;
    scenario.scheduler.min_free_slots.get_or_insert(Count((w / 8).max(1)));
    for entry in scenario.compare.iter_mut().filter(|entry| entry.mode == ModeName::Refill) {
        if entry.min_coda_batch.is_none() && entry.coda_share.is_none() {
            let share = if model.coda_layers > 0 { 0.25 } else { 0.0 };
            entry.min_coda_batch = Some(coda_batch(Share(share), w));
        }
    }
    Ok(())
}

/// K as a share of W.
fn coda_batch(Share(share): Share, w: u32) -> Count {
    Count(((share * f64::from(w)) as u32).max(1))
}

fn schedulers(
    scenario: &Scenario,
    model: &Architecture,
    profile: &Profile,
    workload: &Workload,
) -> Result<Vec<Planned>, PlanError> {
    if scenario.compare.is_empty() {
        return Err(fault("compare", "name at least one scheduler, such as `- mode: refill`"));
    }
    let mut planned: Vec<Planned> = Vec::new();
    for (index, entry) in scenario.compare.iter().enumerate() {
        let at = |field: &str| format!("compare.{index}.{field}");
        let w = scenario.scheduler.max_num_seqs.0;
        let mode = mode(entry, w, profile).map_err(|reason| fault(at("mode"), reason))?;
        let config = config(scenario, model, mode);
        config.check().map_err(|error| fault(path_of(&error, index), error.reason))?;
        let full_depth = entry.full_depth || mode == Mode::ContinuousBatching;
        let exits = if full_depth { Exits::FullDepth(model.r_max) } else { workload.exits().clone() };
        if scenario.kv.layout == Layout::DepthIndexed && !matches!(exits, Exits::FullDepth(_)) {
            let reason = "depth_indexed accepts full-depth exits only, since nothing fills the planes that a token skips: \
                          use last_exited or shared, or `exits: full_depth`";
            return Err(fault("kv.layout", reason));
        }
        let name = entry.name.clone().unwrap_or_else(|| default_name(entry, mode));
        if planned.iter().any(|other| other.name == name) {
            return Err(fault(at("mode"), format!("two schedulers are called `{name}`: give one a `name`")));
        }
        planned.push(Planned { name, config, exits, full_depth });
    }
    Ok(planned)
}

fn mode(entry: &SchedulerEntry, w: u32, profile: &Profile) -> Result<Mode, String> {
    if entry.mode != ModeName::Refill && (entry.min_coda_batch.is_some() || entry.coda_share.is_some()) {
        return Err("only `refill` has a minimum coda batch: remove min_coda_batch and coda_share".into());
    }
    if entry.min_coda_batch.is_some() && entry.coda_share.is_some() {
        return Err("min_coda_batch and coda_share say the same thing: keep one".into());
    }
    Ok(match entry.mode {
        ModeName::ContinuousBatching => Mode::ContinuousBatching,
        ModeName::NoRefill => Mode::NoRefill,
        ModeName::Refill => {
            let share = entry.coda_share.map(|share| coda_batch(share, w));
            Mode::Refill { min_coda_batch: entry.min_coda_batch.or(share).map_or(1, |count| count.0) }
        }
        ModeName::AdaptiveRefill => Mode::AdaptiveRefill(profile.stage_costs()),
    })
}

fn config(scenario: &Scenario, model: &Architecture, mode: Mode) -> SchedulerConfig {
    let (settings, kv) = (&scenario.scheduler, &scenario.kv);
    SchedulerConfig {
        mode,
        overlap: settings.overlap,
        finish: match settings.finish {
            FinishSettings::Length => Finish::Length,
            FinishSettings::Eos { .. } => Finish::Eos,
        },
        max_num_seqs: settings.max_num_seqs.0,
        max_num_batched_tokens: settings.max_num_batched_tokens.0,
        min_free_slots: settings.min_free_slots.map_or(1, |slots| slots.0),
        max_context_tokens: settings.max_context_tokens.0,
        r_max: model.r_max,
        r_min: r_min(scenario, model),
        kv: KvConfig {
            layout: kv.layout,
            blocks: kv.blocks.0,
            block_tokens: kv.block_tokens.0,
            headroom_blocks: (kv.headroom.0 * f64::from(kv.blocks.0)) as u64,
            pressure: kv.pressure,
            boundary_layers: model.has_boundary_layers(),
        },
    }
}

/// The scenario's field behind a scheduler's setting.
fn path_of(error: &ConfigError, index: usize) -> String {
    match error.field {
        "min_coda_batch" => format!("compare.{index}.min_coda_batch"),
        "r_min" => "model".into(),
        field if field.starts_with("kv.") => field.into(),
        field => format!("scheduler.{field}"),
    }
}

fn default_name(entry: &SchedulerEntry, mode: Mode) -> String {
    let name = match mode {
        Mode::ContinuousBatching => return "continuous batching".into(),
        Mode::NoRefill => "no refill".into(),
        Mode::Refill { min_coda_batch } => format!("refill K={min_coda_batch}"),
        Mode::AdaptiveRefill(_) => "adaptive refill".into(),
    };
    if entry.full_depth { format!("{name}, full depth") } else { name }
}
