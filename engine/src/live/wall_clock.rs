//! Real time, for live runs.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::executor::Clock;
use crate::units::Nanos;

/// Waits of less than this spin: the operating system wakes sleepers late.
const SPIN: Duration = Duration::from_micros(200);

/// The machine's monotonic clock, from the moment it was made.
///
/// Waiting is until an absolute time, so that lateness does not add up.
#[derive(Clone, Debug)]
pub struct WallClock {
    start: Instant,
    waker: Waker,
}

/// Wakes a clock that idles, from any thread.
#[derive(Clone, Debug, Default)]
pub struct Waker(Arc<(Mutex<bool>, Condvar)>);

impl Waker {
    /// Ends the clock's wait, or its next one if it does not wait now.
    pub fn wake(&self) {
        let (woken, changed) = &*self.0;
        *woken.lock().unwrap_or_else(PoisonError::into_inner) = true;
        changed.notify_one();
    }

    /// Waits until it is woken or the time is up; true if it was woken.
    fn wait(&self, timeout: Option<Duration>) -> bool {
        let (woken, changed) = &*self.0;
        let mut woken = woken.lock().unwrap_or_else(PoisonError::into_inner);
        if !*woken {
            woken = match timeout {
                Some(timeout) => changed.wait_timeout(woken, timeout).unwrap_or_else(PoisonError::into_inner).0,
                None => changed.wait_while(woken, |woken| !*woken).unwrap_or_else(PoisonError::into_inner),
            };
        }
        std::mem::take(&mut *woken)
    }
}

impl WallClock {
    /// Time zero is now.
    #[expect(clippy::disallowed_methods, reason = "this is the clock that reads the machine's")]
    pub fn start() -> Self {
        Self { start: Instant::now(), waker: Waker::default() }
    }

    /// What ends its waits for something to do.
    pub fn waker(&self) -> Waker {
        self.waker.clone()
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

    fn idle(&mut self, time: Option<Nanos>) {
        let Some(time) = time else {
            self.waker.wait(None);
            return;
        };
        let left = Duration::from_nanos(time.saturating_sub(self.now()).0);
        let woken = left.checked_sub(SPIN).is_some_and(|sleep| self.waker.wait(Some(sleep)));
        if !woken {
            self.wait_until(time);
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

    #[test]
    fn who_idles_is_woken_before_the_time_and_a_wait_until_a_time_is_not() {
        let mut clock = WallClock::start();
        let waker = clock.waker();
        waker.wake();
        clock.wait_until(clock.now() + Nanos(2_000_000));
        let before = clock.now();
        clock.idle(Some(before + Nanos(60_000_000_000)));
        assert!(clock.now() - before < Nanos(30_000_000_000), "it was woken before it idled");
        let other = std::thread::spawn(move || waker.wake());
        clock.idle(None);
        other.join().unwrap();
    }
}
