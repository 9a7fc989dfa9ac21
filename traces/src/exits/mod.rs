//! Exit depths: after how many loops each decoded token leaves the core.
//!
//! A depth is a pure function of (request, token), so that no schedule can change it. Token 0 comes from prefill at full
//! depth and is never asked for.

pub mod distribution;
pub mod preset;
pub mod replay;
pub mod table;

use std::sync::Arc;

use engine::architecture::{Architecture, Family};
use engine::executor::ExitSource;
use engine::request::RequestId;
use engine::units::Depth;

use crate::config::ExitsConfig;
use crate::error::TracesError;
use crate::exits::distribution::Distribution;
use crate::exits::replay::RecordedExits;
use crate::exits::table::DepthTable;
use crate::numbers::Correlation;

/// The true exit depths of a workload. Cheap to clone.
#[derive(Clone, Debug)]
pub enum Exits {
    /// Every token runs this many loops.
    FullDepth(Depth),
    /// Recorded depths.
    Replay(Arc<RecordedExits>),
    /// Depths drawn from a table.
    Distribution(Distribution),
}

/// Which exits a model and an overlap mode allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllowedExits {
    /// The model's family, which a preset must be made for.
    pub family: Family,
    /// The shallowest exit: 1, or the model's `r_min` under lookahead.
    pub min: Depth,
    /// The deepest exit: the model's `r_max`.
    pub max: Depth,
}

impl AllowedExits {
    /// Whatever a depth can be, for readers that know no model. The family matters to presets alone.
    pub const ANY: Self = Self { family: Family::OURO, min: Depth::FIRST, max: Depth(u8::MAX) };

    /// What a model allows; a lookahead of one loop needs exits at `r_min` or deeper.
    pub fn of(model: &Architecture, lookahead: bool) -> Self {
        Self { family: model.family, min: if lookahead { model.r_min } else { Depth::FIRST }, max: model.r_max }
    }

    /// An error unless the depth is allowed.
    pub fn check(&self, depth: Depth) -> Result<(), TracesError> {
        if (self.min..=self.max).contains(&depth) {
            return Ok(());
        }
        Err(TracesError::Depth { depth, min: self.min, max: self.max })
    }
}

impl Exits {
    /// The exits that a scenario asks for; `recorded` are the workload file's.
    pub fn new(
        config: &ExitsConfig,
        allowed: AllowedExits,
        recorded: Option<RecordedExits>,
        seed: u64,
    ) -> Result<Self, TracesError> {
        let distribution = |table: &DepthTable, correlation: Correlation| {
            table.depths().try_for_each(|depth| allowed.check(depth))?;
            Ok(Self::Distribution(Distribution::new(table, correlation, seed)))
        };
        match config {
            // What a gate will do is known only when it has run.
            ExitsConfig::FullDepth | ExitsConfig::Gate(_) => Ok(Self::FullDepth(allowed.max)),
            ExitsConfig::Replay => recorded
                .map(|exits| Self::Replay(Arc::new(exits)))
                .ok_or(TracesError::NeedsFile { what: "exits: replay" }),
            ExitsConfig::Preset { name, correlation } => {
                let preset = name.preset();
                if preset.family != allowed.family {
                    let (name, preset, model) = (preset.name, preset.family, allowed.family);
                    return Err(TracesError::PresetFamily { name, preset, model });
                }
                distribution(&preset.table(), *correlation)
            }
            ExitsConfig::Distribution { depths, correlation } => distribution(depths, *correlation),
        }
    }
}

impl ExitSource for Exits {
    #[inline]
    fn exit_depth(&self, request: RequestId, token: u32) -> Depth {
        match self {
            Self::FullDepth(depth) => *depth,
            Self::Replay(recorded) => recorded.depth(request, token),
            Self::Distribution(distribution) => distribution.depth(request, token),
        }
    }
}
