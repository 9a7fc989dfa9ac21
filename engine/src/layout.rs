//! Where the KV of a token's loops is kept (the paper's Section 4.2 and Appendix E.1).

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::units::Depth;

/// A depth-aware KV cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layout {
    /// One plane per loop; accepts full-depth exits only, since nothing fills the planes that a token skipped.
    DepthIndexed,
    /// One plane per loop; a token that exited at `r` serves the deeper planes from plane `r`.
    LastExited,
    /// One plane, overwritten by every loop.
    Shared,
    /// The first loop has its plane, all later loops share a second; needs `r_min >= 2`.
    FirstThenShared,
}

impl Layout {
    /// Planes that the core keeps per token.
    pub fn planes(self, r_max: Depth) -> u8 {
        match self {
            Self::DepthIndexed | Self::LastExited => r_max.0,
            Self::Shared => 1,
            Self::FirstThenShared => r_max.0.min(2),
        }
    }

    /// The plane (from 0) that a loop at `depth` writes.
    pub fn plane_written(self, depth: Depth) -> u8 {
        match self {
            Self::DepthIndexed | Self::LastExited => depth.0 - 1,
            Self::Shared => 0,
            Self::FirstThenShared => u8::from(depth.0 > 1),
        }
    }

    /// The plane from which a loop at `depth` reads a token that exited at `exit` (prompt tokens: `r_max`).
    pub fn plane_read(self, depth: Depth, exit: Depth) -> u8 {
        match self {
            Self::LastExited => self.plane_written(depth.min(exit)),
            _ => self.plane_written(depth),
        }
    }

    /// The name in scenarios and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::DepthIndexed => "depth_indexed",
            Self::LastExited => "last_exited",
            Self::Shared => "shared",
            Self::FirstThenShared => "first_then_shared",
        }
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
