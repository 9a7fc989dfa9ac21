//! Whether a run had more load than it could carry.

use super::RunMetrics;

/// Growth of the queue that is tolerated, as a share of the arrival rate.
const TOLERATED: f64 = 0.02;

/// Standard deviations of a chance slope that a growing queue must exceed.
const DEVIATIONS: f64 = 2.0;

impl RunMetrics {
    /// How fast the prompt queue grew over the last four fifths of the arrival window, in requests per second (least squares
    /// over the series, each stretch as heavy as it is long); `None` offline.
    pub fn queue_growth_per_s(&self) -> Option<f64> {
        let (from_s, to_s) = self.judged_window()?;
        // A stretch's mean stands at its middle.
        let points = self.series.iter().map(|p| ((p.start_s + p.end_s) / 2.0, p.prompt_queue, p.end_s - p.start_s));
        let points: Vec<_> = points.filter(|(middle, ..)| (from_s..=to_s).contains(middle)).collect();
        let weight: f64 = points.iter().map(|(.., w)| w).sum();
        let mean = |value: fn(&(f64, f64, f64)) -> f64| points.iter().map(|p| value(p) * p.2).sum::<f64>() / weight;
        let (t, q) = (mean(|p| p.0), mean(|p| p.1));
        let spread: f64 = points.iter().map(|p| p.2 * (p.0 - t).powi(2)).sum();
        (spread > 0.0).then(|| points.iter().map(|p| p.2 * (p.0 - t) * (p.1 - q)).sum::<f64>() / spread)
    }

    /// Past saturation: the prompt queue grew by more than 2% of the arrival rate, and by more than chance explains; `None`
    /// offline.
    ///
    /// Chance: exactly at capacity the queue wanders like a Brownian motion of variance 2 lambda t (Poisson arrivals, services
    /// as irregular), and the least-squares slope of that over T seconds has the variance 1.2 * 2 lambda / T. Short windows
    /// and low rates therefore cannot show a small overload, and do not pretend to.
    pub fn saturated(&self) -> Option<bool> {
        let (from_s, to_s) = self.judged_window()?;
        let rate_per_s = self.requests.arrived as f64 / self.arrival_window_s;
        let chance = DEVIATIONS * (2.4 * rate_per_s / (to_s - from_s)).sqrt();
        Some(self.queue_growth_per_s()? > chance.max(TOLERATED * rate_per_s))
    }

    /// The arrival window without its first fifth, in which slots still fill.
    fn judged_window(&self) -> Option<(f64, f64)> {
        let start_s = self.first_arrival_s;
        (self.arrival_window_s > 0.0)
            .then_some((start_s + 0.2 * self.arrival_window_s, start_s + self.arrival_window_s))
    }
}
