//! Real time, for live runs.

use std::time::{Duration, Instant};

use crate::executor::Clock;
use crate::units::Nanos;

/// Waits of less than this spin: the operating system wakes sleepers late.
const SPIN: Duration = Duration::from_micros(200);

/// The machine's monotonic clock, from the moment it was made.
///
/// Waiting is until an absolute time, so that lateness does not add up.
#[derive(Clone, Copy, Debug)]
pub struct WallClock {
    start: Instant,
}

impl WallClock {
    /// Time zero is now.
    #[expect(clippy::disallowed_methods, reason = "this is the clock that reads the machine's")]
    pub fn start() -> Self {
        Self { start: Instant::now() }
    }
}

impl Clock for WallClock {
    fn now(&self) -> Nanos {
        Nanos(self.start.elapsed().as_nanos() as u64)
    }

    fn wait_until(&mut self, time: Nanos) {
        loop {
            let left = Duration::from_nanos(time.saturating_sub(self.now()).0);
            match left.checked_sub(SPIN) {
                Some(sleep) => std::thread::sleep(sleep),
                None if left.is_zero() => return,
                None => std::hint::spin_loop(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_waits_until_a_time_and_no_longer_for_one_that_has_passed() {
        let mut clock = WallClock::start();
        for step in 1..=5 {
            clock.wait_until(Nanos(step * 1_000_000));
            assert!(clock.now() >= Nanos(step * 1_000_000));
        }
        let now = clock.now();
        clock.wait_until(Nanos(1));
        assert!(clock.now().saturating_sub(now) < Nanos(1_000_000_000));
    }
}
