//! Conditions: named ways of answering, such as `loops=4`, `released=0.8` or `lookahead=0.8:shared`.

use std::fmt;
use std::str::FromStr;

use engine::architecture::Architecture;
use engine::layout::Layout;
use engine::models::gate::GateSpec;
use engine::scheduler::{Finish, KvConfig, Mode, Overlap, SchedulerConfig};
use engine::units::Depth;

/// One way of answering.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Condition {
    /// When tokens leave.
    pub leaving: Leaving,
    /// Where the KV of each loop is kept.
    pub layout: Layout,
}

/// When tokens leave.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Leaving {
    /// Every token, the prompt's too, runs so many loops.
    Loops(u8),
    /// A gate decides at a threshold; the prompt runs all loops.
    Gate(GateKind, f32),
}

/// Which gate decides, and when the scheduler knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateKind {
    /// The model's own, at once.
    Released,
    /// The same one loop late, under lookahead: the stand-in for a trained lookahead gate.
    Delayed,
    /// The trained lookahead gate.
    Lookahead,
}

impl GateKind {
    const ALL: [Self; 3] = [Self::Released, Self::Delayed, Self::Lookahead];

    /// As conditions write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Released => "released",
            Self::Delayed => "delayed",
            Self::Lookahead => "lookahead",
        }
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.leaving {
            Leaving::Loops(loops) => write!(f, "loops={loops}")?,
            Leaving::Gate(gate, threshold) => write!(f, "{}={threshold}", gate.name())?,
        }
        if self.layout == Layout::LastExited { Ok(()) } else { write!(f, ":{}", self.layout) }
    }
}

impl FromStr for Condition {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (leaving, layout) = text.split_once(':').unwrap_or((text, Layout::LastExited.name()));
        let layout = Layout::ALL.into_iter().find(|known| known.name() == layout).ok_or_else(|| {
            let names = Layout::ALL.map(Layout::name).join(", ");
            format!("`{layout}` is no KV layout: behind the colon stands one of {names}")
        })?;
        let form = || format!("write `loops=4`, `released=0.8`, `delayed=0.8` or `lookahead=0.8`, got `{text}`");
        let (what, value) = leaving.split_once('=').ok_or_else(form)?;
        let leaving = match GateKind::ALL.into_iter().find(|gate| gate.name() == what) {
            Some(gate) => {
                let threshold: f32 = value.parse().map_err(|_| form())?;
                if !threshold.is_finite() {
                    return Err(form());
                }
                Leaving::Gate(gate, threshold)
            }
            None if what == "loops" => Leaving::Loops(value.parse().map_err(|_| form())?),
            None => return Err(form()),
        };
        Ok(Self { leaving, layout })
    }
}

impl Condition {
    /// Full depth first, which all others are set against; then fixed depths and, where the model has a gate, each gate's
    /// thresholds.
    pub fn defaults(architecture: &Architecture, gates: &[GateKind]) -> Vec<Self> {
        let loops = (1..=architecture.r_max.0).rev().map(Leaving::Loops);
        let thresholds = [0.5, 0.7, 0.8, 0.85, 0.9, 0.95];
        let gates = gates.iter().flat_map(|&gate| thresholds.map(|threshold| Leaving::Gate(gate, threshold)));
        loops.chain(gates).map(|leaving| Self { leaving, layout: Layout::LastExited }).collect()
    }

    /// The gate as the engine wants it; none at a fixed depth.
    pub fn gate(&self) -> Option<GateSpec> {
        match self.leaving {
            Leaving::Loops(_) => None,
            Leaving::Gate(kind, threshold) => {
                Some(GateSpec { lookahead: kind != GateKind::Released, ..GateSpec::at(threshold) })
            }
        }
    }

    /// Whether the model's lookahead gate is left out, so that its released one is delayed instead.
    pub fn leaves_out_lookahead_gate(&self) -> bool {
        matches!(self.leaving, Leaving::Gate(GateKind::Delayed, _))
    }

    /// What the scheduler is told, with room for W requests of at most `context` tokens.
    ///
    /// # Errors
    /// The model has fewer loops, or the layout does not suit.
    pub fn scheduler(&self, architecture: &Architecture, context: u32) -> Result<SchedulerConfig, String> {
        let base = SchedulerConfig::of(architecture);
        let base = match self.leaving {
            Leaving::Loops(loops) => {
                if !(1..=architecture.r_max.0).contains(&loops) {
                    let most = architecture.r_max;
                    return Err(format!("{self}: {} runs 1 to {most} loops", architecture.name));
                }
                let depth = Depth(loops);
                let mode = Mode::ContinuousBatching;
                SchedulerConfig { mode, overlap: Overlap::Asynchronous, r_max: depth, r_min: depth, ..base }
            }
            Leaving::Gate(..) if self.layout == Layout::DepthIndexed => {
                return Err(format!("{self}: depth_indexed keeps nothing for the loops that a token skips"));
            }
            Leaving::Gate(GateKind::Released, _) => {
                SchedulerConfig { overlap: Overlap::Asynchronous, r_min: Depth::FIRST, ..base }
            }
            Leaving::Gate(..) => base,
        };
        let pages = u64::from(base.max_num_seqs) * u64::from(context.div_ceil(base.kv.block_tokens));
        let blocks = pages * u64::from(self.layout.planes(base.r_max));
        let kv = KvConfig { layout: self.layout, blocks: u32::try_from(blocks).unwrap_or(u32::MAX), ..base.kv };
        let config = SchedulerConfig { finish: Finish::Eos, max_context_tokens: context, kv, ..base };
        config.check().map_err(|error| format!("{self}: {error}"))?;
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tiny() -> Architecture {
        Architecture::builtin("tiny-ouro").unwrap()
    }

    #[test]
    fn a_condition_is_written_as_it_is_read() {
        for text in ["loops=4", "released=0.8", "delayed=0.5:shared", "lookahead=0.95:first_then_shared"] {
            assert_eq!(text.parse::<Condition>().unwrap().to_string(), text);
        }
        for (text, said) in [
            ("fast", "got `fast`"),
            ("loops=x", "got `loops=x`"),
            ("released=nan", "got `released=nan`"),
            ("released=0.8:paged", "`paged` is no KV layout"),
        ] {
            let error = text.parse::<Condition>().unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
    }

    #[test]
    fn a_pool_has_room_for_every_slot_at_its_longest() {
        let config = "released=0.5".parse::<Condition>().unwrap().scheduler(&tiny(), 33).unwrap();
        assert_eq!((config.kv.blocks, config.max_context_tokens), (64 * 3 * 4, 33));
        let config = "loops=2:shared".parse::<Condition>().unwrap().scheduler(&tiny(), 33).unwrap();
        assert_eq!((config.kv.blocks, config.r_max), (64 * 3, Depth(2)));
    }

    #[test]
    fn what_the_model_or_layout_cannot_do_is_refused_with_the_condition() {
        for text in ["loops=5", "loops=0", "released=0.5:depth_indexed", "released=0.5:first_then_shared"] {
            let error = text.parse::<Condition>().unwrap().scheduler(&tiny(), 33).unwrap_err();
            assert!(error.starts_with(text), "{error}");
        }
    }
}
