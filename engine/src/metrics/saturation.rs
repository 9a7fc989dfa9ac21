//! Whether a run had more load than it could carry.

use std::fmt::{self, Display};

use super::RunMetrics;

/// Growth of the queue that is tolerated, as a share of the arrival rate.
const TOLERATED: f64 = 0.02;

/// Standard deviations of a chance slope that a growing queue must exceed.
const DEVIATIONS: f64 = 2.0;

/// Arrivals must last so many times as long as a request takes, so that slots fill within their first fifth.
const LIVES: f64 = 5.0;

/// Why a run does not tell whether it keeps up with its load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Unjudged {
    /// No request was served.
    NothingServed,
    /// A client does not see a server's queue.
    StepsUnseen,
    /// The arrivals were over before a queue could have shown.
    TooShort {
        /// From the first to the last arrival, in seconds.
        window_s: f64,
        /// Mean end-to-end latency, in seconds.
        life_s: f64,
    },
}

impl Display for Unjudged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NothingServed => f.write_str("no request was served"),
            Self::StepsUnseen => f.write_str("the server's queue is not seen from outside"),
            Self::TooShort { window_s, life_s } => write!(
                f,
                "requests arrive for {window_s:.3} s and take {life_s:.3} s each: too short to tell what load is kept up \
                 with, which needs {LIVES} times as long as a request"
            ),
        }
    }
}

impl RunMetrics {
    /// How fast the prompt queue grew over the judged part of the arrivals, in requests per second (least squares over the
    /// series, each stretch as heavy as it is long); `None` offline, or if all of it is one stretch.
    pub fn queue_growth_per_s(&self) -> Option<f64> {
        let (from_s, to_s) = (self.judged?.from_s, self.last_arrival_s());
        // A stretch's mean stands at the middle of what lies in the window.
        let points = self.series.iter().map(|point| {
            let (start_s, end_s) = (point.start_s.max(from_s), point.end_s.min(to_s));
            ((start_s + end_s) / 2.0, point.prompt_queue, end_s - start_s)
        });
        let points: Vec<_> = points.filter(|(.., weight)| *weight > 0.0).collect();
        let weight: f64 = points.iter().map(|(.., w)| w).sum();
        let mean = |value: fn(&(f64, f64, f64)) -> f64| points.iter().map(|p| value(p) * p.2).sum::<f64>() / weight;
        let (t, q) = (mean(|p| p.0), mean(|p| p.1));
        let spread: f64 = points.iter().map(|p| p.2 * (p.0 - t).powi(2)).sum();
        (points.len() > 1).then(|| points.iter().map(|p| p.2 * (p.0 - t) * (p.1 - q)).sum::<f64>() / spread)
    }

    /// Past saturation: over the judged part of the arrivals the prompt queue was never empty, and grew by more than 2% of
    /// the arrival rate and by more than chance explains. Not past it: the same could have shown, and did not.
    ///
    /// Chance: exactly at capacity the queue wanders like a Brownian motion of variance (c + 1) lambda t (c: squared
    /// coefficient of variation of the gaps, at least 1; services as irregular as Poisson arrivals), and the least-squares
    /// slope of that over T seconds has the variance 1.2 (c + 1) lambda / T. Short windows, low rates and bursts therefore
    /// cannot show a small overload, and do not pretend to.
    ///
    /// # Errors
    /// The run says neither; offline runs say so, too.
    pub fn saturation(&self) -> Result<bool, Unjudged> {
        if self.requests.finished == 0 {
            return Err(Unjudged::NothingServed);
        }
        if self.is_from_outside() {
            return Err(Unjudged::StepsUnseen);
        }
        let (window_s, life_s) = (self.arrival_window_s, self.e2e.mean);
        match self.queue_grows() {
            true => Ok(true),
            false if window_s >= LIVES * life_s => Ok(false),
            false => Err(Unjudged::TooShort { window_s, life_s }),
        }
    }

    /// The verdict of [`Self::saturation`]; `None` if there is none.
    pub fn saturated(&self) -> Option<bool> {
        self.saturation().ok()
    }

    /// Mean rate at which requests that could be served arrived; `None` if they came at one instant.
    pub fn arrival_rate_per_s(&self) -> Option<f64> {
        let served = self.requests.arrived - self.requests.refused;
        (self.arrival_window_s > 0.0).then(|| served as f64 / self.arrival_window_s)
    }

    fn queue_grows(&self) -> bool {
        let Some((judged, growth)) = self.judged.zip(self.queue_growth_per_s()) else { return false };
        let (rate_per_s, window_s) = (judged.rate_per_s, self.last_arrival_s() - judged.from_s);
        let variance = 1.2 * (judged.gap_variation.max(1.0) + 1.0) * rate_per_s / window_s;
        !judged.emptied && growth > (DEVIATIONS * variance.sqrt()).max(TOLERATED * rate_per_s)
    }

    fn last_arrival_s(&self) -> f64 {
        self.first_arrival_s + self.arrival_window_s
    }
}
