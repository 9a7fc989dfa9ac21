//! Exit signals: what a backend tells of every loop that nobody leaves early, by criterion and whatever shares a batch.

use std::collections::{BTreeMap, VecDeque};

use super::cases::{Case, Group, groups};
use super::compare::Mismatch;
use super::{Failure, play};
use crate::architecture::Architecture;
use crate::executor::Clock;
use crate::layout::Layout;
use crate::live::{Backend, Live, LiveConfig, LiveError, LiveExits, Ran, Transcripts, Work};
use crate::models::criterion::Criterion;
use crate::models::gate::GateSpec;
use crate::request::RequestId;
use crate::units::Depth;

/// Ways of running the requests in which each has one position on its way; exits are at full depth.
const CASES: [&str; 3] = ["one request after the other", "all requests together", "mixed depths in a batch"];

/// Signals by request, output token in the making, and loop.
pub type Signals = BTreeMap<(RequestId, u32, Depth), f32>;

/// What a backend told while it ran a case.
#[derive(Clone, Debug, Default)]
pub struct Heard {
    /// The first number of every pair.
    pub signals: Signals,
    /// What was made meanwhile.
    pub transcripts: Transcripts,
}

/// How far a criterion's signals are from an oracle's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SignalError {
    /// Signals compared.
    pub compared: usize,
    /// The largest difference; of argmax stability the share of ids that differ.
    pub max_error: f32,
}

/// Runs the cases of a criterion on executors from `make` and compares the signals with `oracle`'s, up to the first token
/// that differs. Among themselves the cases must agree bit for bit.
///
/// # Errors
/// The first case that fails: a backend's error, or a signal further off than `tolerance`.
pub fn run_signals<B: Backend>(
    architecture: &Architecture,
    criterion: Criterion,
    mut make: impl FnMut(LiveConfig) -> Result<Live<B>, LiveError<B::Error>>,
    mut oracle: impl FnMut(&Group, &Case, LiveConfig) -> Heard,
    tolerance: f32,
) -> Result<SignalError, Failure<LiveError<B::Error>>> {
    let full_depth = |group: &Group| group.layout == Layout::LastExited && group.is_full_depth();
    let group = groups(architecture).into_iter().find(full_depth).expect("every model has one");
    let mut total = SignalError { compared: 0, max_error: 0.0 };
    let mut first: Option<Heard> = None;
    for case in group.cases.iter().filter(|case| CASES.contains(&case.name)) {
        let name = format!("{}, {}, {}", group.name, case.name, criterion.name());
        let config = config(architecture, criterion, &group, case);
        let executor = make(config.clone()).map_err(|source| Failure::Execution { case: name.clone(), source })?;
        let got = hear(architecture, executor, &group, case)?;
        let expected = oracle(&group, case, config);
        let error = compare(criterion, &expected, &got, tolerance)
            .map_err(|mismatch| Failure::Oracle { case: name.clone(), mismatch })?;
        total.compared += error.compared;
        total.max_error = total.max_error.max(error.max_error);
        let first = first.get_or_insert_with(|| got.clone());
        same(first, &got).map_err(|mismatch| Failure::Invariance { case: name, mismatch })?;
    }
    Ok(total)
}

/// Runs a case on an executor and keeps what its backend tells; the executor is one of a config that
/// [`run_signals`] made.
///
/// # Errors
/// Those of [`play`].
pub fn hear<B: Backend>(
    architecture: &Architecture,
    executor: Live<B>,
    group: &Group,
    case: &Case,
) -> Result<Heard, Failure<LiveError<B::Error>>> {
    let config = executor.config().clone();
    let prompts = case.submissions.iter().map(|submission| {
        let request = submission.arrival.request;
        (request.id, request.prompt_tokens)
    });
    let listened = Listened {
        device: executor.backend,
        prompts: prompts.collect(),
        asked: VecDeque::new(),
        heard: Signals::new(),
    };
    let mut executor = Live::on(listened, architecture, config, false).expect("the config was taken before");
    play(&mut executor, group, case)?;
    Ok(Heard { transcripts: executor.transcripts().clone(), signals: executor.backend.heard })
}

/// What an executor is told: a criterion that is asked after every loop and met after none.
fn config(architecture: &Architecture, criterion: Criterion, group: &Group, case: &Case) -> LiveConfig {
    let threshold = match criterion {
        Criterion::Hazard => 1.0 - f32::EPSILON,
        Criterion::LatentDifference | Criterion::EntropyDifference | Criterion::Kl => f32::MIN_POSITIVE,
        // Met after the last loop at the earliest.
        Criterion::ArgmaxStability => f32::from(architecture.r_max.0 - 1),
    };
    let exits = LiveExits::Gate(GateSpec { criterion: Some(criterion), ..GateSpec::at(threshold) });
    LiveConfig { exits, window: 1, ..case.config(group) }
}

fn compare(criterion: Criterion, expected: &Heard, got: &Heard, tolerance: f32) -> Result<SignalError, Mismatch> {
    let (mut compared, mut differing, mut max_error) = (0, 0, 0.0_f32);
    for (key, &signal) in &expected.signals {
        let (request, token, depth) = *key;
        let made = |heard: &Heard| heard.transcripts.get(request).output[..token as usize].to_vec();
        if made(expected) != made(got) {
            continue;
        }
        let told = got.signals.get(key).copied().unwrap_or(f32::NAN);
        compared += 1;
        differing += usize::from(told != signal);
        let error = (told - signal).abs();
        // Not `error > tolerance`, which a NaN would pass.
        let close = error <= tolerance;
        if criterion != Criterion::ArgmaxStability && !close {
            let what = format!("loop {depth} gave {told:e}, expected {signal:e} within {tolerance:e}");
            return Err(Mismatch { request: request.0, token: token as usize, what });
        }
        max_error = max_error.max(error);
    }
    if criterion == Criterion::ArgmaxStability {
        max_error = differing as f32 / compared as f32;
        let close = max_error <= tolerance;
        if !close {
            let what = format!("{differing} of {compared} largest logits are other tokens'");
            return Err(Mismatch { request: 0, token: 0, what });
        }
    }
    Ok(SignalError { compared, max_error })
}

/// The same signals, bit for bit.
fn same(first: &Heard, got: &Heard) -> Result<(), Mismatch> {
    let bits = |signal: Option<&f32>| signal.map(|signal| signal.to_bits());
    let differs = |key| bits(first.signals.get(key)) != bits(got.signals.get(key));
    match first.signals.keys().chain(got.signals.keys()).find(|key| differs(*key)) {
        None => Ok(()),
        Some(key) => {
            let (request, token, depth) = *key;
            let what = format!("loop {depth} gave {:?}, not {:?}", got.signals.get(key), first.signals.get(key));
            Err(Mismatch { request: request.0, token: token as usize, what })
        }
    }
}

/// A backend that is listened to.
#[derive(Debug)]
struct Listened<B> {
    device: B,
    /// Prompt tokens.
    prompts: BTreeMap<RequestId, u32>,
    /// Whose signals the work in flight gives.
    asked: VecDeque<Vec<(RequestId, u32, Depth)>>,
    heard: Signals,
}

impl<B: Backend> Backend for Listened<B> {
    type Error = B::Error;

    fn vocab(&self) -> u32 {
        self.device.vocab()
    }

    fn launch(&mut self, work: Work, clock: &mut dyn Clock) -> Result<(), B::Error> {
        let lanes = work.lanes.iter().filter(|_| work.signals);
        let key =
            |lane: &crate::live::Lane| (lane.request, lane.position + 1 - self.prompts[&lane.request], lane.depth);
        self.asked.push_back(lanes.map(key).collect());
        self.device.launch(work, clock)
    }

    fn wait(&mut self, clock: &mut dyn Clock) -> Result<Ran, B::Error> {
        let ran = self.device.wait(clock)?;
        let asked = self.asked.pop_front().expect("work was launched before it is waited for");
        assert_eq!(ran.signals.len(), asked.len(), "a pair of signals a lane");
        self.heard.extend(asked.into_iter().zip(ran.signals.iter().map(|pair| pair[0])));
        Ok(ran)
    }

    fn forget(&mut self, request: RequestId) {
        self.device.forget(request);
    }
}
