//! Exits of a live run: replayed or the model's own, and what the scheduler is told of them, and when.

use std::fmt;
use std::sync::Arc;

use crate::architecture::Architecture;
use crate::batch::Row;
use crate::executor::ExitSource;
use crate::layout::Layout;
use crate::models::gate::{Gate, GateMemory, GateSpec};
use crate::request::RequestId;
use crate::scheduler::{Overlap, SchedulerConfig};
use crate::units::Depth;

/// Who decides when a row leaves.
#[derive(Clone)]
pub enum Exits {
    /// Depths by request and token; a replayed depth is the effective one.
    Replay(Arc<dyn ExitSource + Send + Sync>),
    /// The model's gate.
    Gate(GateSpec),
}

impl fmt::Debug for Exits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Replay(_) => f.write_str("Replay"),
            Self::Gate(spec) => f.debug_tuple("Gate").field(spec).finish(),
        }
    }
}

/// An exit that the run's settings do not allow.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExitError {
    /// The scheduler would learn of it too late, or the model or layout does not allow it.
    #[error("request {}, token {token} exits at depth {depth}, but must lie within {r_min} and {r_max}", request.0)]
    OutOfRange {
        /// The request.
        request: RequestId,
        /// The output token.
        token: u32,
        /// Its exit.
        depth: Depth,
        /// The shallowest exit allowed.
        r_min: Depth,
        /// Full depth.
        r_max: Depth,
    },
    /// The layout keeps nothing for the loops that a token skips.
    #[error(
        "request {}, token {token} exits at depth {depth}, but depth_indexed accepts full-depth exits only \
         (r_max = {r_max}): use last_exited, shared or first_then_shared",
        request.0
    )]
    DepthIndexed {
        /// The request.
        request: RequestId,
        /// The output token.
        token: u32,
        /// Its exit.
        depth: Depth,
        /// Full depth.
        r_max: Depth,
    },
    /// A gate that decides too late for the overlap mode.
    #[error("overlap: lookahead needs exits one loop early: set `lookahead: true` for the gate")]
    NeedsLookahead,
}

/// Exits, ready to run.
#[derive(Clone, Debug)]
pub struct ExitPolicy {
    exits: Exits,
    gate: Option<Gate>,
    overlap: Overlap,
    layout: Layout,
    r_min: Depth,
    r_max: Depth,
}

impl ExitPolicy {
    /// Exits under a scheduler's settings. `trained_lookahead` says that the weights hold a trained lookahead gate.
    ///
    /// # Errors
    /// [`ExitError::NeedsLookahead`].
    pub fn new(
        exits: Exits,
        architecture: &Architecture,
        config: &SchedulerConfig,
        trained_lookahead: bool,
    ) -> Result<Self, ExitError> {
        let gate = match exits {
            Exits::Replay(_) => None,
            Exits::Gate(spec) => Some(Gate::new(spec, architecture, config.r_max, trained_lookahead)),
        };
        if config.overlap == Overlap::Lookahead && gate.is_some_and(|gate| !gate.looks_ahead()) {
            return Err(ExitError::NeedsLookahead);
        }
        let (overlap, layout, r_min, r_max) = (config.overlap, config.kv.layout, config.r_min, config.r_max);
        Ok(Self { exits, gate, overlap, layout, r_min, r_max })
    }

    /// The gate, if the model decides.
    pub fn gate(&self) -> Option<&Gate> {
        self.gate.as_ref()
    }

    /// How reports must name these exits.
    pub fn label(&self) -> &'static str {
        self.gate.map_or("replayed", |gate| gate.label())
    }

    /// What the outcome says of a core row that has just run loop `row.depth`: the exit, once the scheduler may know it.
    ///
    /// Under lookahead that is one loop before the exit, otherwise the exit's own loop.
    ///
    /// # Errors
    /// The exit is not allowed.
    pub fn reveal(&self, row: &Row, memory: &GateMemory) -> Result<Option<Depth>, ExitError> {
        let decided = match &self.exits {
            Exits::Replay(source) => Some(source.exit_depth(row.request, row.token)),
            Exits::Gate(_) => memory.leaves_after,
        };
        let Some(depth) = decided else { return Ok(None) };
        let (request, token, r_min, r_max) = (row.request, row.token, self.r_min, self.r_max);
        if !(r_min..=r_max).contains(&depth) {
            return Err(ExitError::OutOfRange { request, token, depth, r_min, r_max });
        }
        if self.layout == Layout::DepthIndexed && depth < r_max {
            return Err(ExitError::DepthIndexed { request, token, depth, r_max });
        }
        let horizon = match self.overlap {
            Overlap::Synchronous | Overlap::Asynchronous => row.depth,
            Overlap::Lookahead => row.depth.next(),
        };
        Ok((depth <= horizon).then_some(depth))
    }
}
