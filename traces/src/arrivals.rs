//! Arrival times, as endless streams: the workload ends them.

use rand_distr::{Distribution, Gamma};
use rand_pcg::Pcg64;

use engine::units::Nanos;

use crate::config::ArrivalsConfig;
use crate::file::Rows;
use crate::numbers::{Burstiness, RatePerS, Seconds};
use crate::streams::{self, Purpose};

/// The latest arrival, in seconds: 31 years. Times count from the run's start, not from 1970.
pub const MAX_ARRIVAL_S: f64 = 1e9;

/// When requests arrive, in order.
#[derive(Clone, Debug)]
pub enum ArrivalTimes<'a> {
    /// All at time zero, or when whoever runs them says.
    Offline,
    /// Independent gaps.
    Renewal(Renewal),
    /// A file's times, and the next row's number.
    Trace(&'a Rows, usize),
}

impl<'a> ArrivalTimes<'a> {
    /// The stream that a scenario asks for; `rows` is the workload's file. The same seed gives the same stream.
    ///
    /// Returns `None` for `trace` without a file.
    pub fn new(config: &ArrivalsConfig, rows: Option<&'a Rows>, seed: u64) -> Option<Self> {
        let renewal = |rate, burstiness, duration| {
            Self::Renewal(Renewal::new(rate, burstiness, duration, streams::stream(seed, Purpose::Arrivals)))
        };
        Some(match *config {
            // When a client of a closed loop sends depends on the answers.
            ArrivalsConfig::Offline | ArrivalsConfig::Closed { .. } => Self::Offline,
            ArrivalsConfig::Poisson { rate_per_s, duration_s } => renewal(rate_per_s, Burstiness::POISSON, duration_s),
            ArrivalsConfig::Gamma { rate_per_s, burstiness, duration_s } => renewal(rate_per_s, burstiness, duration_s),
            ArrivalsConfig::Trace => Self::Trace(rows?, 0),
        })
    }
}

impl Iterator for ArrivalTimes<'_> {
    type Item = Nanos;

    fn next(&mut self) -> Option<Nanos> {
        match self {
            Self::Offline => Some(Nanos::ZERO),
            Self::Renewal(renewal) => renewal.next(),
            Self::Trace(rows, next) => {
                let time = rows.arrival(*next);
                *next += 1;
                time
            }
        }
    }
}

/// Arrivals with independent gamma-distributed gaps of mean 1 / rate; burstiness (the shape) 1 is a Poisson process.
///
/// As in vLLM's benchmark (scale = 1 / (rate * burstiness)), without its stretching of the trace to n / rate.
#[derive(Clone, Debug)]
pub struct Renewal {
    gap_s: Gamma<f64>,
    /// The last arrival. Kept in seconds, so that rounding to nanoseconds does not add up.
    time_s: f64,
    end_s: f64,
    rng: Pcg64,
}

impl Renewal {
    fn new(rate: RatePerS, burstiness: Burstiness, duration: Option<Seconds>, rng: Pcg64) -> Self {
        let (shape, scale) = (burstiness.get(), 1.0 / (rate.get() * burstiness.get()));
        // Rates near zero or infinity have no finite positive scale; the workload refuses what they lead to.
        let gap_s = Gamma::new(shape, scale.clamp(1e-300, 1e300)).expect("shape and scale are positive and finite");
        Self { gap_s, time_s: 0.0, end_s: duration.map_or(f64::INFINITY, Seconds::get), rng }
    }
}

impl Iterator for Renewal {
    type Item = Nanos;

    fn next(&mut self) -> Option<Nanos> {
        self.time_s += self.gap_s.sample(&mut self.rng);
        (self.time_s < self.end_s).then(|| Nanos::from_secs(self.time_s))
    }
}
