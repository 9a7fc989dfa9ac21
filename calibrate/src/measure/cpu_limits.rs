//! What this machine's cores could do at best: memory bandwidth and matrix throughput, for the physical floor in reports.

use engine::executor::Clock;
use engine::live::cpu::multiply;

use crate::measurements::median;

/// Numbers copied by a thread: 64 MiB, beyond its caches.
const COPIED: usize = 16 << 20;

/// Inputs of the multiplied panel: with its rows it fits a core's second-level cache.
const INPUTS: usize = 1024;

/// Rows and outputs of the multiplication, the engine's largest tile.
const TILE: usize = 64;

/// Tiles that a thread multiplies in one repeat.
const TILES: u32 = 200;

/// Timed repeats; the median counts.
const REPEATS: usize = 7;

/// What threads reach together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CpuLimits {
    /// Bytes read and written by large copies.
    pub bandwidth_gb_per_s: f64,
    /// Multiplications and additions of f32 matrix products.
    pub compute_tflops: f64,
}

impl CpuLimits {
    /// Measures this CPU with `threads` threads, in about a second.
    pub fn measure(threads: usize, clock: &dyn Clock) -> Self {
        let mut buffers: Vec<_> = (0..threads).map(|_| (vec![1.0_f32; COPIED], vec![0.0_f32; COPIED])).collect();
        let copied_bytes = (threads * COPIED * 2 * size_of::<f32>()) as f64;
        let copy_ns = repeat(clock, &mut buffers, |(from, to)| to.copy_from_slice(from));
        let operand = || vec![1.0_f32; TILE * INPUTS];
        let mut tiles: Vec<_> = (0..threads).map(|_| (operand(), operand(), vec![0.0; TILE * TILE])).collect();
        let flops = (threads * TILES as usize * 2 * TILE * TILE * INPUTS) as f64;
        let multiply_ns = repeat(clock, &mut tiles, |(rows, panel, out)| {
            (0..TILES).for_each(|_| multiply(std::hint::black_box(rows), panel, out, TILE));
        });
        Self { bandwidth_gb_per_s: copied_bytes / copy_ns, compute_tflops: flops / multiply_ns / 1e3 }
    }
}

/// The median time in ns in which every thread does its work once; the first repeat warms up.
fn repeat<T: Send>(clock: &dyn Clock, threads: &mut [T], work: impl Fn(&mut T) + Sync) -> f64 {
    let times = (0..=REPEATS).map(|_| {
        let started = clock.now();
        std::thread::scope(|scope| {
            for thread in threads.iter_mut() {
                scope.spawn(|| work(thread));
            }
        });
        (clock.now() - started).0 as f64
    });
    let times: Vec<f64> = times.collect();
    median(times.into_iter().skip(1))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use engine::units::Nanos;

    use super::*;

    /// A clock on which every piece of work takes a millisecond, whoever does it.
    struct Ticking(Cell<u64>);

    impl Clock for Ticking {
        fn now(&self) -> Nanos {
            Nanos(self.0.replace(self.0.get() + 1_000_000))
        }

        fn wait_until(&mut self, _: Nanos) {}

        fn idle(&mut self, _: Option<Nanos>) {}
    }

    #[test]
    fn limits_are_the_work_of_all_threads_over_the_time_that_it_takes() {
        let of = |threads| CpuLimits::measure(threads, &Ticking(Cell::new(0)));
        let (one, two) = (of(1), of(2));
        // Each number of 4 bytes is read and written.
        assert_eq!(one.bandwidth_gb_per_s, 8.0 * COPIED as f64 / 1e6);
        let flops = f64::from(TILES) * 2.0 * (TILE * TILE * INPUTS) as f64;
        assert!((one.compute_tflops / (flops / 1e9) - 1.0).abs() < 1e-12, "{}", one.compute_tflops);
        assert_eq!(
            (two.bandwidth_gb_per_s, two.compute_tflops),
            (2.0 * one.bandwidth_gb_per_s, 2.0 * one.compute_tflops)
        );
    }
}
