//! `sim observe`: a scenario's requests against any OpenAI-compatible server, and what the model says of them beside it.

mod asked;
mod facts;
mod measured;

use std::time::Duration;

use client::{Dialect, Endpoint, ProbeError, Wishes};
use engine::live::TakenExits;
use engine::metrics::Recorder;
use reports::validation::{SchedulerValidation, Validation};
use reports::{Measures, ReportError, SchedulerReport};
use traces::file::write::FileWriter;
use traces::{ExitsConfig, TracesError};

pub use facts::{CLIENT, Observed};

use crate::live::{Log, Logged, described, ks_distances, metric_pairs, recorded};
use crate::run::compare;
use crate::run::output::{FileSink, Files};
use crate::run::plan::Plan;
use crate::run::serve::{Sink, serve};
use measured::Measured;

/// A request that takes longer has failed.
pub const TIMEOUT: Duration = Duration::from_secs(600);

/// A server, and how it can be asked.
#[derive(Clone, Debug)]
pub struct Server {
    /// Where it is.
    pub endpoint: Endpoint,
    /// What its requests have in common.
    pub dialect: Dialect,
    /// It tells after how many loops each token left.
    pub tells_depths: bool,
}

/// Why a server could not be observed.
#[derive(Debug, thiserror::Error)]
pub enum ObserveError {
    /// It is not there, or gives no tokens.
    #[error(transparent)]
    Probe(#[from] ProbeError),
    /// Say what the model is to expect.
    #[error(
        "exits: the server does not tell after how many loops its tokens left, so nothing can be predicted of a gate: write \
         `exits: full_depth`, or a distribution"
    )]
    NoDepths,
    /// The client could not begin.
    #[error("{0}")]
    Client(String),
    /// Check the server's log.
    #[error("the server answered none of the {requests} requests: {why}")]
    Nothing {
        /// How many were sent.
        requests: usize,
        /// The failures by kind.
        why: String,
    },
    /// Exits that the server told cannot be the model's.
    #[error("exits that the server told: {0}")]
    Exits(#[from] TracesError),
    /// A file could not be written.
    #[error(transparent)]
    Report(#[from] ReportError),
}

/// What was seen, beside what the model says.
pub struct Observation {
    /// Predicted against measured.
    pub validation: Validation,
    /// The scheduler twice: predicted, and measured in the first run.
    pub schedulers: Vec<SchedulerReport>,
    /// What only a client knows.
    pub observed: Observed,
    /// The exits that the server told, as a workload file that is complete but for its name.
    pub recording: Option<FileWriter>,
}

impl Server {
    /// Tries out how the server can be asked for the plan's requests.
    ///
    /// # Errors
    /// It is not there, or gives no tokens.
    pub fn probe(endpoint: Endpoint, plan: &Plan, model: Option<&str>) -> Result<Self, ObserveError> {
        let wishes = Wishes {
            model: model.map(str::to_owned),
            vocab: Some(u32::try_from(plan.model.vocab).unwrap_or(u32::MAX)),
            seed: plan.scenario.live.prompt_seed,
            exits: asked::exits(&plan.scenario.exits),
        };
        let (dialect, answer) = client::probe(&endpoint, &wishes)?;
        let tells_depths = !answer.depths.is_empty();
        if matches!(plan.scenario.exits, ExitsConfig::Gate(_)) && !tells_depths {
            return Err(ObserveError::NoDepths);
        }
        Ok(Self { endpoint, dialect, tells_depths })
    }

    /// Sends the plan's requests as often as wanted, at their times, and predicts them for its first scheduler.
    ///
    /// # Errors
    /// A run got no answer at all, or a file cannot be written.
    pub fn observe(
        &self,
        plan: &Plan,
        repeats: u32,
        title: &str,
        files: &mut Files,
    ) -> Result<Observation, ObserveError> {
        let planned = &plan.schedulers[0];
        let label = |side: &str| format!("{}, {side}", planned.name);
        let mut runs = Vec::new();
        for repeat in 0..repeats {
            let load = asked::load(plan);
            let run = client::run(&self.endpoint, &self.dialect, plan.workload.arrivals(), load, TIMEOUT);
            let run = Measured::of(&run.map_err(ObserveError::Client)?, plan, planned);
            if run.log.requests.is_empty() {
                let (requests, why) = (run.facts.sent, run.facts.failures_text());
                return Err(ObserveError::Nothing { requests, why });
            }
            eprintln!("run {} of {repeats}: {}", repeat + 1, run.facts.line());
            runs.push(run);
        }
        let mut sink = FileSink::new(files, &label("measured"), plan.workload.requests());
        runs[0].log.requests.iter().try_for_each(|record| sink.request(record))?;
        drop(sink);
        let (predicted_plan, recording) = self.with_told_exits(plan, &runs[0].exits, files)?;
        let mut sink = Logged::new(Some(FileSink::new(files, &label("predicted"), plan.workload.requests())));
        let recorder = serve(&predicted_plan, &predicted_plan.schedulers[0], &mut sink)?;
        let validation = self.validation(plan, title, (&recorder, &sink.into_log()), &runs);
        let report = |side: &str, recorder: &Recorder| SchedulerReport {
            name: label(side),
            ..compare::scheduler_report(planned, recorder)
        };
        let schedulers = vec![report("predicted", &recorder), report("measured", &runs[0].recorder)];
        let missing = missing(&schedulers);
        let runs = runs.into_iter().map(|run| run.facts).collect();
        Ok(Observation { validation, schedulers, observed: Observed::new(self, runs, missing), recording })
    }

    /// The plan with the exits that the server took, where its gate decided.
    fn with_told_exits(
        &self,
        plan: &Plan,
        exits: &TakenExits,
        files: &Files,
    ) -> Result<(Plan, Option<FileWriter>), ObserveError> {
        let mut plan = plan.clone();
        let ExitsConfig::Gate(_) = plan.scenario.exits else { return Ok((plan, None)) };
        let (file, exits) = recorded(&plan, &plan.schedulers[0], exits, files.dir())?;
        plan.schedulers[0].exits = exits;
        Ok((plan, Some(file)))
    }

    fn validation(&self, plan: &Plan, title: &str, predicted: (&Recorder, &Log), runs: &[Measured]) -> Validation {
        let planned = &plan.schedulers[0];
        let measured: Vec<Measures> = runs.iter().map(|run| Measures::new(&run.recorder.metrics())).collect();
        let scheduler = SchedulerValidation {
            name: planned.name.clone(),
            metrics: metric_pairs(&Measures::new(&predicted.0.metrics()), &measured),
            floor: None,
            load: None,
            batches_identical: None,
            first_difference: None,
            ks_distance: ks_distances(predicted.1, &runs[0].log),
            stages: Vec::new(),
            step_pairs: Vec::new(),
        };
        Validation {
            device: self.endpoint.to_string(),
            exits: asked::label(&plan.scenario.exits, self).into(),
            ..described(plan, title, runs.len() as u32, vec![scheduler])
        }
    }
}

/// The figures that the prediction has and the server does not tell.
fn missing(sides: &[SchedulerReport]) -> Vec<String> {
    let [predicted, measured] = [0, 1].map(|side| Measures::new(&sides[side].metrics).values());
    let pairs = Measures::ALL.iter().zip(predicted.into_iter().zip(measured));
    pairs
        .filter(|(_, (predicted, measured))| predicted.is_some() && measured.is_none())
        .map(|(it, _)| it.column.into())
        .collect()
}
