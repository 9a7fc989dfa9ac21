//! Splitting work over threads, where it pays. The pieces never depend on the number of threads.

use std::cell::Cell;

use rayon::prelude::*;

/// Arithmetic below which waking a second thread costs more than it saves: about 50 us of one core.
const WORTHWHILE_FLOPS: usize = 1 << 21;

thread_local! {
    /// The work of this thread is not to be split.
    static ALONE: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work` here, without splitting any of it.
///
/// A pool of one thread would do the same, but handing every batch over to it and back costs tens of microseconds, as
/// many as a small core step, and another number each time.
pub(super) fn alone<T>(work: impl FnOnce() -> T) -> T {
    let before = ALONE.replace(true);
    let result = work();
    ALONE.set(before);
    result
}

/// Runs `work` on every chunk of `data` with its index, in parallel if `flops` are worth it. `scratch` is made once a
/// thread.
pub(super) fn for_each_chunk<S>(
    data: &mut [f32],
    chunk: usize,
    flops: usize,
    scratch: impl Fn() -> S + Sync + Send,
    work: impl Fn(&mut S, usize, &mut [f32]) + Sync + Send,
) {
    if flops < WORTHWHILE_FLOPS || ALONE.get() || rayon::current_num_threads() == 1 {
        let mut scratch = scratch();
        data.chunks_mut(chunk).enumerate().for_each(|(i, chunk)| work(&mut scratch, i, chunk));
    } else {
        data.par_chunks_mut(chunk).enumerate().for_each_init(scratch, |scratch, (i, chunk)| work(scratch, i, chunk));
    }
}
