//! What the tests share: small worlds to schedule in, and an observer that keeps everything.

use std::ops::ControlFlow;

use engine::architecture::Architecture;
use engine::event_loop::{self, Observer, Refused, Step};
use engine::executor::{ExitSource, VirtualClock};
use engine::inbox::Replay;
use engine::metrics::{Recorder, RequestRecord, RunMetrics};
use engine::profile::{DeviceSpec, Profile};
use engine::request::{Arrival, Request, RequestId};
use engine::scheduler::{Mode, Overlap, Scheduler, SchedulerConfig};
use engine::submission::Submission;
use engine::units::{Depth, Nanos};
use sim::run::modelled::Modelled;

/// Exit depths by request and token (index `token - 1`).
#[derive(Clone, Debug)]
pub struct Exits(pub Vec<Vec<u8>>);

impl ExitSource for Exits {
    fn exit_depth(&self, request: RequestId, token: u32) -> Depth {
        Depth(self.0[request.0 as usize][token as usize - 1])
    }
}

/// Everything that was observed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Log {
    /// Steps in order.
    pub steps: Vec<Step>,
    /// Refused requests.
    pub refused: Vec<(RequestId, Refused)>,
    /// Cancelled requests, and when.
    pub cancelled: Vec<(RequestId, Nanos)>,
}

impl Observer for Log {
    fn arrived(&mut self, arrival: &Arrival, now: Nanos, refused: Option<&Refused>) {
        assert!(now >= arrival.request.arrival, "a request was known before it arrived");
        self.refused.extend(refused.map(|refused| (arrival.request.id, refused.clone())));
    }

    fn cancelled(&mut self, request: RequestId, now: Nanos) {
        self.cancelled.push((request, now));
    }

    fn step(&mut self, step: &Step) -> ControlFlow<()> {
        // Preemption makes progress: no world of the tests needs more.
        assert!(self.steps.len() < 100_000, "the schedule does not come to an end");
        self.steps.push(step.clone());
        ControlFlow::Continue(())
    }
}

/// Keeps everything, and records it as a run does.
struct Recording {
    log: Log,
    recorder: Recorder,
}

impl Observer for Recording {
    fn arrived(&mut self, arrival: &Arrival, now: Nanos, refused: Option<&Refused>) {
        self.log.arrived(arrival, now, refused);
        self.recorder.arrived(arrival, now, refused);
    }

    fn cancelled(&mut self, request: RequestId, now: Nanos) {
        self.log.cancelled(request, now);
        self.recorder.cancelled(request);
    }

    fn step(&mut self, step: &Step) -> ControlFlow<()> {
        self.recorder.step(step);
        self.log.step(step)
    }
}

/// A scheduler, requests, exits and a modelled device.
#[derive(Clone, Debug)]
pub struct World {
    /// What the scheduler is told.
    pub config: SchedulerConfig,
    /// In order of arrival.
    pub arrivals: Vec<Arrival>,
    /// What the executor replays.
    pub exits: Exits,
    /// What the device costs.
    pub profile: Profile,
}

impl World {
    /// Runs to the end, and says what was recorded of it.
    pub fn record(&self) -> (Log, Vec<RequestRecord>, RunMetrics) {
        let mut observer = Recording { log: Log::default(), recorder: Recorder::new(self.config.max_num_seqs, None) };
        self.serve(&mut observer);
        let Recording { log, mut recorder } = observer;
        let records = recorder.take_finished().collect();
        (log, records, recorder.metrics())
    }

    /// Runs to the end.
    pub fn run(&self) -> Log {
        let mut log = Log::default();
        self.serve(&mut log);
        log
    }

    /// Runs to the end with these requests in place of its own.
    pub fn run_submissions(&self, submissions: Vec<Submission>) -> Log {
        let mut log = Log::default();
        self.serve_submissions(submissions, &mut log);
        log
    }

    fn serve(&self, observer: &mut impl Observer) {
        self.serve_submissions(self.arrivals.iter().copied().map(Submission::from).collect(), observer);
    }

    fn serve_submissions(&self, submissions: Vec<Submission>, observer: &mut impl Observer) {
        let mut scheduler = Scheduler::new(self.config).expect("the test's settings are valid");
        let mut executor = Modelled::new(&self.profile, &tiny(), &self.config, false, self.exits.clone());
        let inbox = &mut Replay::new(submissions.into_iter());
        let Ok(()) = event_loop::run(&mut scheduler, &mut executor, &mut VirtualClock::default(), inbox, observer);
        scheduler.check_pool();
    }

    /// The same world under another overlap mode.
    pub fn with_overlap(&self, overlap: Overlap) -> Self {
        Self { config: SchedulerConfig { overlap, ..self.config }, ..self.clone() }
    }
}

/// A model with layers on both sides of the loop.
pub fn tiny() -> Architecture {
    Architecture::builtin("tiny-huginn").expect("built in")
}

/// A device without overheads.
pub fn roofline() -> Profile {
    Profile::roofline(&DeviceSpec::datasheet("h100-80gb").expect("built in"), &tiny())
}

/// A request of a workload file.
pub fn arrival(id: u32, at: Nanos, prompt_tokens: u32, output_tokens: u32) -> Arrival {
    let request = Request { id: RequestId(id), arrival: at, prompt_tokens, max_output_tokens: output_tokens };
    Arrival { request, output_tokens, cancel_after: None }
}

/// A roomy scheduler of `max_num_seqs` slots.
pub fn config(mode: Mode, max_num_seqs: u32) -> SchedulerConfig {
    let defaults = SchedulerConfig::of(&tiny());
    SchedulerConfig {
        mode,
        max_num_seqs,
        min_free_slots: (max_num_seqs / 8).max(1),
        r_max: Depth(4),
        r_min: Depth(2),
        ..defaults
    }
}
