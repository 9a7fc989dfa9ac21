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
    /// Every layout.
    pub const ALL: [Self; 4] = [Self::DepthIndexed, Self::LastExited, Self::Shared, Self::FirstThenShared];

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

    /// Whether a token that left at `exit` serves every loop that others can run: each reads a plane that was written.
    pub fn serves(self, exit: Depth, r_max: Depth) -> bool {
        let written = |plane| (1..=exit.0).any(|depth| self.plane_written(Depth(depth)) == plane);
        (1..=r_max.0).all(|depth| written(self.plane_read(Depth(depth), exit)))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_serves_every_loop_where_those_that_it_ran_wrote_what_all_read() {
        let r_max = Depth(4);
        let serving =
            |layout: Layout| -> Vec<u8> { (1..=4).filter(|&exit| layout.serves(Depth(exit), r_max)).collect() };
        assert_eq!(serving(Layout::DepthIndexed), [4]);
        assert_eq!(serving(Layout::LastExited), [1, 2, 3, 4]);
        assert_eq!(serving(Layout::Shared), [1, 2, 3, 4]);
        assert_eq!(serving(Layout::FirstThenShared), [2, 3, 4]);
        assert!(Layout::FirstThenShared.serves(Depth(1), Depth(1)));
    }
}
