//! Exits of a live run: replayed or the model's own, and what the scheduler is told of them, and when.

use std::fmt;
use std::sync::Arc;

use crate::architecture::Architecture;
use crate::executor::{ExitSource, Reject};
use crate::layout::Layout;
use crate::models::criterion::Criterion;
use crate::models::gate::{Gate, GateError, GateMemory, GateSpec, Signal};
use crate::request::RequestId;
use crate::scheduler::{Overlap, SchedulerConfig};
use crate::submission::ExitRule;
use crate::units::Depth;

/// Who decides when a row leaves.
#[derive(Clone)]
pub enum LiveExits {
    /// Depths by request and token; a replayed depth is the effective one.
    Replay(Arc<dyn ExitSource + Send + Sync>),
    /// The model's gate, or another criterion.
    Gate(GateSpec),
}

impl LiveExits {
    /// What a device must compute after each loop: what the run's tokens are judged by, or the model's own where exits are
    /// replayed or the gate is one that [`Gate::new`] refuses.
    pub fn criterion(&self, architecture: &Architecture) -> Criterion {
        let asked = match self {
            Self::Replay(_) => None,
            Self::Gate(spec) => spec.criterion(architecture).ok(),
        };
        asked.unwrap_or_else(|| Criterion::of(architecture))
    }
}

impl fmt::Debug for LiveExits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Replay(_) => f.write_str("Replay"),
            Self::Gate(spec) => f.debug_tuple("Gate").field(spec).finish(),
        }
    }
}

/// An exit that the run's settings do not allow.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what the fields are")]
pub enum ExitError {
    /// The scheduler would learn of it too late, or the model or layout does not allow it.
    #[error("request {}, token {token} exits at depth {depth}, but must lie within {r_min} and {r_max}", request.0)]
    OutOfRange { request: RequestId, token: u32, depth: Depth, r_min: Depth, r_max: Depth },
    /// The layout keeps nothing for the loops that a token skips.
    #[error(
        "request {}, token {token} exits at depth {depth}, but depth_indexed accepts full-depth exits only \
         (r_max = {r_max}): use last_exited, shared or first_then_shared",
        request.0
    )]
    DepthIndexed { request: RequestId, token: u32, depth: Depth, r_max: Depth },
    /// A gate that decides too late for the overlap mode.
    #[error("overlap: lookahead needs exits one loop early: set `lookahead: true` for the gate")]
    NeedsLookahead,
    /// A gate that the model cannot have.
    #[error("exits.gate.{field}: {0}", field = .0.field())]
    Gate(#[from] GateError),
    /// A position that is read out after every loop stores the coda's keys and values, which the positions behind it would
    /// read before it has left.
    #[error(
        "{} runs the layers behind the loop after every loop, so a sequence can have one position on its way at once, and \
         this run's window is {window}: take latent_difference, or a window of 1", criterion.name()
    )]
    SideBySide {
        /// The criterion.
        criterion: Criterion,
        /// Positions of one sequence on their way at once.
        window: u32,
    },
}

/// Exits under a scheduler's settings, ready to run.
#[derive(Clone, Debug)]
pub(super) struct ExitPolicy {
    exits: LiveExits,
    gate: Option<Gate>,
    architecture: Architecture,
    trained_lookahead: bool,
    layout: Layout,
    r_min: Depth,
    r_max: Depth,
}

/// Who decides for one request.
#[derive(Clone, Copy, Debug)]
pub(super) enum Decider {
    /// Recorded depths.
    Replay,
    /// A gate.
    Gate(Gate),
    /// Nobody: its tokens never leave early.
    FullDepth,
}

impl Decider {
    /// A gate; one that never fires decides nothing, and need not be asked after every loop.
    fn of(gate: Gate) -> Self {
        if gate.never_fires() { Self::FullDepth } else { Self::Gate(gate) }
    }
}

impl ExitPolicy {
    /// `trained_lookahead` says that the weights hold a trained lookahead gate, `window` how many positions of a sequence can
    /// be on their way at once.
    pub(super) fn new(
        exits: LiveExits,
        architecture: &Architecture,
        (config, window): (&SchedulerConfig, u32),
        trained_lookahead: bool,
    ) -> Result<Self, ExitError> {
        let gate = match exits {
            LiveExits::Replay(_) => None,
            LiveExits::Gate(spec) => Some(Gate::new(spec, architecture, config.r_max, trained_lookahead)?),
        };
        if config.overlap == Overlap::Lookahead && gate.is_some_and(|gate| !gate.looks_ahead()) {
            return Err(ExitError::NeedsLookahead);
        }
        let criterion = exits.criterion(architecture);
        if criterion.reads_logits() && architecture.coda_layers > 0 && window > 1 {
            return Err(ExitError::SideBySide { criterion, window });
        }
        let (layout, r_min, r_max) = (config.kv.layout, config.r_min, config.r_max);
        Ok(Self { exits, gate, architecture: architecture.clone(), trained_lookahead, layout, r_min, r_max })
    }

    /// The model decides where a request does not say otherwise, so its signals may be needed.
    pub(super) fn reads_signals(&self) -> bool {
        self.gate.is_some()
    }

    /// How reports must name these exits.
    pub(super) fn label(&self) -> &'static str {
        self.gate.map_or("replayed", |gate| gate.label())
    }

    /// Who decides for a request that asks for `rule`.
    pub(super) fn decider(&self, rule: Option<ExitRule>) -> Result<Decider, Reject> {
        match (rule, &self.exits) {
            (Some(ExitRule::FullDepth), _) => Ok(Decider::FullDepth),
            (None, LiveExits::Replay(_)) => Ok(Decider::Replay),
            (None, LiveExits::Gate(_)) => Ok(self.gate.map_or(Decider::FullDepth, Decider::of)),
            (Some(ExitRule::Threshold { .. }), LiveExits::Replay(_)) => Err(Reject::Exit(
                "exits are replayed, so no request can have a threshold of its own: run with a gate".into(),
            )),
            (Some(ExitRule::Threshold { threshold, min_depth }), LiveExits::Gate(spec)) => {
                let spec = GateSpec { threshold: Some(threshold), min_depth: min_depth.or(spec.min_depth), ..*spec };
                self.gate_of_request(spec).map(Decider::of)
            }
        }
    }

    /// A request's own gate, if every exit that it can give is one that the scheduler allows.
    fn gate_of_request(&self, spec: GateSpec) -> Result<Gate, Reject> {
        let (r_min, r_max) = (self.r_min, self.r_max);
        let refuse = |reason: String| Err(Reject::Exit(reason));
        let gate = Gate::new(spec, &self.architecture, r_max, self.trained_lookahead)
            .map_err(|error| Reject::Exit(error.to_string()))?;
        if self.layout == Layout::DepthIndexed {
            return refuse(format!(
                "depth_indexed accepts full-depth exits only (r_max = {r_max}), so no request can have a threshold: \
                 run with last_exited, shared or first_then_shared"
            ));
        }
        if let Some(depth) = spec.min_depth
            && !(Depth::FIRST..=r_max).contains(&depth)
        {
            return refuse(format!("the minimum depth must be between 1 and r_max = {r_max}, got {depth}"));
        }
        // A gate that speaks of the next loop does so after the first.
        let fires = if gate.signal == Signal::NextHazard { gate.first.max(Depth(2)) } else { gate.first };
        let earliest = Depth(fires.0.saturating_add(gate.delay)).min(r_max);
        if earliest < r_min {
            return refuse(format!(
                "its tokens could leave after loop {earliest}, but this run lets none leave before r_min = {r_min}: \
                 ask for a minimum depth of at least {}",
                r_min.0 - gate.delay
            ));
        }
        Ok(gate)
    }

    /// Where an output token leaves, once that is decided.
    pub(super) fn decided(
        &self,
        decider: Decider,
        (request, token): (RequestId, u32),
        memory: &GateMemory,
    ) -> Result<Option<Depth>, ExitError> {
        let decided = match (decider, &self.exits) {
            (Decider::FullDepth, _) => Some(self.r_max),
            (Decider::Replay, LiveExits::Replay(source)) => Some(source.exit_depth(request, token)),
            (Decider::Replay | Decider::Gate(_), _) => memory.leaves_after,
        };
        let Some(depth) = decided else { return Ok(None) };
        let (r_min, r_max) = (self.r_min, self.r_max);
        if !(r_min..=r_max).contains(&depth) {
            return Err(ExitError::OutOfRange { request, token, depth, r_min, r_max });
        }
        if self.layout == Layout::DepthIndexed && depth < r_max {
            return Err(ExitError::DepthIndexed { request, token, depth, r_max });
        }
        Ok(Some(depth))
    }
}
