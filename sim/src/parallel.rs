//! Independent jobs over the machine's cores, with results in the order of the jobs.

use std::num::NonZero;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

/// Runs jobs 0 to `count - 1`, each on one thread, and returns their results in this order.
///
/// # Errors
/// That of the first failed job in order; jobs that had not begun by then are left out.
pub fn try_map<T: Send, E: Send>(count: usize, job: impl Fn(usize) -> Result<T, E> + Sync) -> Result<Vec<T>, E> {
    let threads = thread::available_parallelism().map_or(1, NonZero::get).min(count);
    let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let work = || {
        let mut done = Vec::new();
        while !failed.load(Ordering::Relaxed) {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= count {
                break;
            }
            let result = job(index);
            failed.fetch_or(result.is_err(), Ordering::Relaxed);
            done.push((index, result));
        }
        done
    };
    let mut done: Vec<_> = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("a job does not panic")).collect()
    });
    // Jobs begin in order, so every job before a failed one was run: the first failure is the same each time.
    done.sort_unstable_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_and_errors_come_in_the_order_of_the_jobs() {
        assert_eq!(try_map(100, Ok::<_, ()>), Ok((0..100).collect()));
        assert_eq!(try_map(100, |job| if job % 7 == 6 { Err(job) } else { Ok(()) }), Err(6));
        assert_eq!(try_map(0, Err::<(), usize>), Ok(Vec::new()));
    }
}
