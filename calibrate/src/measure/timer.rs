//! A clock on a machine that others use too: a launch that waited for a core says nothing about the executor.

use engine::executor::Clock;
use engine::units::Nanos;

/// Launches that waited for a core for longer than this share of their time were disturbed..
const DISTURBED_SHARE: f64 = 0.03;
/// .. and for longer than this: a thread that wakes on an idle core waits for microseconds, in live runs too.
const DISTURBED_LEAST: Nanos = Nanos(20_000);

/// A clock, and for how long this process wanted to run and could not.
pub struct Timer<'a> {
    /// What every time is read from; a virtual one in tests.
    pub clock: &'a mut dyn Clock,
    /// Time that the process's threads waited for a core so far, in sum; always zero where the system does not count it.
    pub run_delay: &'a mut dyn FnMut() -> Nanos,
}

impl Timer<'_> {
    pub(super) fn run_delay(&mut self) -> Nanos {
        (self.run_delay)()
    }
}

/// Whether launches that took so long waited too long for a core.
pub(super) fn is_disturbed(waited: Nanos, took: Nanos) -> bool {
    waited > DISTURBED_LEAST && waited.0 as f64 > DISTURBED_SHARE * took.0 as f64
}
