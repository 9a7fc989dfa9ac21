//! Real time since the start of a run.

use std::time::{Duration, Instant};

use engine::executor::Clock;
use engine::units::Nanos;

/// The machine's monotonic clock.
pub(crate) struct WallClock {
    start: Instant,
}

impl WallClock {
    #[expect(clippy::disallowed_methods, reason = "this is the wall clock")]
    pub(crate) fn start() -> Self {
        Self { start: Instant::now() }
    }
}

impl Clock for WallClock {
    fn now(&self) -> Nanos {
        Nanos(self.start.elapsed().as_nanos() as u64)
    }

    fn wait_until(&mut self, time: Nanos) {
        std::thread::sleep(Duration::from_nanos(time.saturating_sub(self.now()).0));
    }
}
