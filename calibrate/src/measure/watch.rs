//! Times on a machine that others use too: a launch that had to wait for a core says nothing about the executor.

use engine::executor::Clock;
use engine::units::Nanos;

/// Launches that waited for a core for longer than this share of their time were disturbed..
const DISTURBED_SHARE: f64 = 0.03;
/// .. and for longer than this: a thread that wakes on an idle core waits for microseconds, in live runs too.
const DISTURBED_LEAST: Nanos = Nanos(20_000);

/// Launches per wanted sample before giving up.
const PATIENCE: u32 = 2;

/// Disturbed launches without a calm one before giving up: whoever has the core keeps it for a while, and another round comes.
const HOPELESS: usize = 6;

/// A pause after a disturbance: whoever has slept is scheduled before whoever has not.
const PAUSE: Nanos = Nanos(1_000_000);

/// A clock, and who knows for how long this process wanted to run and could not.
pub struct Watch<'a> {
    /// The clock.
    pub clock: &'a mut dyn Clock,
    /// Time that the process's threads waited for a core so far, in sum; always zero where nobody knows.
    pub waited: &'a mut dyn FnMut() -> Nanos,
}

impl Watch<'_> {
    pub(super) fn waited(&mut self) -> Nanos {
        (self.waited)()
    }
}

/// Whether launches that took so long waited too long for a core.
pub(super) fn is_disturbed(waited: Nanos, took: Nanos) -> bool {
    waited > DISTURBED_LEAST && waited.0 as f64 > DISTURBED_SHARE * took.0 as f64
}

/// The times of equal launches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Times {
    /// Their mean, since a run takes the sum of its steps, slow ones included.
    pub time_ms: f64,
    /// The shortest.
    pub min_ms: f64,
    /// The longest.
    pub max_ms: f64,
    /// Launches that did not wait for a core. Only these count; if there are none, the others.
    pub calm: u32,
}

/// Equal launches, until enough of them were calm.
#[derive(Debug)]
pub(super) struct Samples {
    calm_ms: Vec<f64>,
    disturbed_ms: Vec<f64>,
    /// Launches that are not to count: the first, and the one behind a disturbance, which left the caches to others.
    skip: u32,
    wanted: u32,
    left: u32,
    disturbed: bool,
}

impl Samples {
    pub(super) fn new(warm_up: u32, wanted: u32) -> Self {
        let (calm_ms, disturbed_ms) = (Vec::new(), Vec::new());
        Self { calm_ms, disturbed_ms, skip: warm_up, wanted, left: warm_up + wanted * PATIENCE, disturbed: false }
    }

    /// Whether to launch again; pauses if the last launch was disturbed.
    pub(super) fn want_more(&mut self, watch: &mut Watch<'_>) -> bool {
        let hopeless = self.calm_ms.is_empty() && self.disturbed_ms.len() >= HOPELESS;
        let more = self.left > 0 && !hopeless && self.calm_ms.len() < self.wanted as usize;
        if std::mem::take(&mut self.disturbed) && more {
            watch.clock.wait_until(watch.clock.now() + PAUSE);
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
            self.calm_ms.push(time.as_millis());
        }
    }

    /// The times of equal launches that were sampled apart.
    pub(super) fn times(samples: &[Self]) -> Times {
        let calm: Vec<f64> = samples.iter().flat_map(|samples| &samples.calm_ms).copied().collect();
        let disturbed: Vec<f64> = samples.iter().flat_map(|samples| &samples.disturbed_ms).copied().collect();
        Times { calm: calm.len() as u32, ..Times::of(if calm.is_empty() { &disturbed } else { &calm }) }
    }
}

impl Times {
    /// Of launches that were all calm.
    pub(super) fn of(times_ms: &[f64]) -> Self {
        Self {
            time_ms: times_ms.iter().sum::<f64>() / times_ms.len() as f64,
            min_ms: times_ms.iter().copied().fold(f64::INFINITY, f64::min),
            max_ms: times_ms.iter().copied().fold(0.0, f64::max),
            calm: times_ms.len() as u32,
        }
    }
}

#[cfg(test)]
mod tests {
    use engine::executor::VirtualClock;

    use super::*;

    #[test]
    fn launches_that_waited_for_a_core_are_repeated_and_do_not_count() {
        let mut watch = Watch { clock: &mut VirtualClock::default(), waited: &mut || Nanos::ZERO };
        let mut launches = 0;
        let mut samples = Samples::new(1, 4);
        while samples.want_more(&mut watch) {
            let waited = Nanos(if launches % 3 == 2 { 3_000_000 } else { 1_000 });
            let time = Nanos(1_000_000) + waited;
            samples.add(time, is_disturbed(waited, time));
            launches += 1;
        }
        let times = Samples::times(&[samples]);
        // Warm-up, calm, disturbed, warm-up, calm, disturbed, .., until nine launches are enough.
        assert_eq!((launches, times.calm), (9, 3));
        assert!((times.time_ms - 1.001).abs() < 1e-9);
        assert_eq!(watch.clock.now(), Nanos(2 * PAUSE.0));
    }

    #[test]
    fn without_a_calm_moment_the_disturbed_count_and_say_so() {
        let mut watch = Watch { clock: &mut VirtualClock::default(), waited: &mut || Nanos::ZERO };
        let mut samples = Samples::new(2, 16);
        let mut launches = 0;
        while samples.want_more(&mut watch) {
            samples.add(Nanos(5_000_000), is_disturbed(Nanos(4_000_000), Nanos(5_000_000)));
            launches += 1;
        }
        assert_eq!(launches, HOPELESS);
        assert_eq!(Samples::times(&[samples]), Times { time_ms: 5.0, min_ms: 5.0, max_ms: 5.0, calm: 0 });
    }
}
