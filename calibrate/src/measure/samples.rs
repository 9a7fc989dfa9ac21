//! Samples of equal launches, until enough of them were undisturbed.

use engine::units::Nanos;

use super::timer::Timer;
use crate::measurements::Times;

/// Launches per wanted sample before giving up.
const LAUNCHES_PER_SAMPLE: u32 = 2;

/// Disturbed launches without an undisturbed one before giving up: whoever has the core keeps it for a while, and another round comes.
const HOPELESS: usize = 6;

/// A pause after a disturbance: whoever has slept is scheduled before whoever has not.
const PAUSE: Nanos = Nanos(1_000_000);

/// Equal launches, timed until enough of them were undisturbed.
#[derive(Debug)]
pub(super) struct Samples {
    undisturbed_ms: Vec<f64>,
    disturbed_ms: Vec<f64>,
    /// Launches that are not to count: the first, and the one behind a disturbance, which left the caches to others.
    skip: u32,
    wanted: u32,
    left: u32,
    disturbed: bool,
}

impl Samples {
    pub(super) fn new(warm_up: u32, wanted: u32) -> Self {
        Self {
            undisturbed_ms: Vec::new(),
            disturbed_ms: Vec::new(),
            skip: warm_up,
            wanted,
            left: warm_up + wanted * LAUNCHES_PER_SAMPLE,
            disturbed: false,
        }
    }

    /// Whether to launch again; pauses if the last launch was disturbed.
    pub(super) fn want_more(&mut self, timer: &mut Timer<'_>) -> bool {
        let hopeless = self.undisturbed_ms.is_empty() && self.disturbed_ms.len() >= HOPELESS;
        let more = self.left > 0 && !hopeless && self.undisturbed_ms.len() < self.wanted as usize;
        if std::mem::take(&mut self.disturbed) && more {
            timer.clock.wait_until(timer.clock.now() + PAUSE);
        }
        more
    }

    pub(super) fn add(&mut self, time: Nanos, disturbed: bool) {
        self.left = self.left.saturating_sub(1);
        if disturbed {
            self.disturbed = true;
            self.skip = self.skip.max(1);
            self.disturbed_ms.push(time.as_millis());
        } else if self.skip > 0 {
            self.skip -= 1;
        } else {
            self.undisturbed_ms.push(time.as_millis());
        }
    }

    /// The times of equal launches that were sampled apart.
    pub(super) fn times(samples: &[Self]) -> Times {
        let undisturbed: Vec<f64> = samples.iter().flat_map(|samples| &samples.undisturbed_ms).copied().collect();
        let disturbed: Vec<f64> = samples.iter().flat_map(|samples| &samples.disturbed_ms).copied().collect();
        let times = Times::of(if undisturbed.is_empty() { &disturbed } else { &undisturbed });
        Times { undisturbed: undisturbed.len() as u32, ..times }
    }
}

#[cfg(test)]
mod tests {
    use engine::executor::VirtualClock;

    use super::super::timer::is_disturbed;
    use super::*;

    #[test]
    fn launches_that_waited_for_a_core_are_repeated_and_do_not_count() {
        let mut timer = Timer { clock: &mut VirtualClock::default(), run_delay: &mut || Nanos::ZERO };
        let mut launches = 0;
        let mut samples = Samples::new(1, 4);
        while samples.want_more(&mut timer) {
            let waited = Nanos(if launches % 3 == 2 { 3_000_000 } else { 1_000 });
            let time = Nanos(1_000_000) + waited;
            samples.add(time, is_disturbed(waited, time));
            launches += 1;
        }
        let times = Samples::times(&[samples]);
        // Warm-up, undisturbed, disturbed, warm-up, undisturbed, disturbed, .., until nine launches are enough.
        assert_eq!((launches, times.undisturbed), (9, 3));
        assert!((times.time_ms - 1.001).abs() < 1e-9);
        assert_eq!(timer.clock.now(), Nanos(2 * PAUSE.0));
    }

    #[test]
    fn where_every_launch_is_disturbed_these_count_and_say_so() {
        let mut timer = Timer { clock: &mut VirtualClock::default(), run_delay: &mut || Nanos::ZERO };
        let mut samples = Samples::new(2, 16);
        let mut launches = 0;
        while samples.want_more(&mut timer) {
            samples.add(Nanos(5_000_000), is_disturbed(Nanos(4_000_000), Nanos(5_000_000)));
            launches += 1;
        }
        assert_eq!(launches, HOPELESS);
        assert_eq!(Samples::times(&[samples]), Times { time_ms: 5.0, min_ms: 5.0, max_ms: 5.0, undisturbed: 0 });
    }
}
