//! The measurement: driven by a clock that a fake executor advances, so that the truth is known; and for real, briefly.

mod command;
mod fake;
mod recovery;
mod resume;
