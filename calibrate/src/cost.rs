//! Fitting `delta + max(floor, gamma N_b) + alpha N_c` to times, in its two forms.

use engine::interval::student_t_95;
use engine::profile::StageCost;
use nalgebra::Matrix4;

use crate::least_squares::{Equation, Solution, WIDTH, solve};

/// The coefficients' names, in the order and the units of every array here and of the profile.
pub const COEFFICIENTS: [&str; WIDTH] = ["delta_ms", "floor_ms", "gamma_us", "alpha_ns"];

const FLOOR: usize = 1;
const GAMMA: usize = 2;

/// A time to be explained.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Rows before padding (prefill: sequences), to name the sample.
    pub batch: u32,
    /// KV entries per row (prefill: those cached before the chunk), to name the sample.
    pub context: u32,
    /// `N_b`: rows padded to their bucket; prompt tokens for prefill.
    pub rows: f64,
    /// `N_c`: KV entries read; (token, KV entry) pairs for prefill.
    pub entries: f64,
    /// What a fit is to predict.
    pub time_ms: f64,
    /// What an error is relative to: the time itself, or the step from whose fit it was taken.
    pub scale_ms: f64,
}

/// Which of the two forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `delta + gamma N_b + alpha N_c`, the paper's.
    Linear,
    /// With a floor under `gamma N_b`: streaming the weights takes its time however few rows there are.
    Roofline,
}

/// A form, with or without the context's term.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// With or without a floor under the rows' term.
    pub form: Form,
    /// Whether the stage reads KV.
    pub reads_kv: bool,
}

/// A fitted cost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CostFit {
    /// The shape that was fitted.
    pub shape: Shape,
    /// In the order of [`COEFFICIENTS`]; zero where the shape has no such term.
    pub coefficients: [f64; WIDTH],
    /// Which coefficients the data decided; the others are zero by shape, or because they would be negative.
    pub estimated: [bool; WIDTH],
    /// The coefficients' covariance, given which side of the floor each sample is on.
    pub covariance: [[f64; WIDTH]; WIDTH],
    /// Samples minus estimated parameters.
    pub degrees: usize,
    /// Coefficient of determination of the times, `1 - sum (t - fit)^2 / sum (t - mean)^2`.
    pub r_squared: f64,
}

/// Fits a shape by least squares of relative errors (weights `1 / t^2`), no coefficient negative.
///
/// `None` if the samples cannot tell its terms apart: too few, or collinear.
pub fn fit(samples: &[Sample], shape: Shape) -> Option<CostFit> {
    match shape.form {
        Form::Linear => {
            let terms = [true, false, true, shape.reads_kv];
            let solution = solve(&equations(samples, linear_row), terms)?;
            CostFit::new(samples, shape, &solution, None)
        }
        Form::Roofline => fit_roofline(samples, shape),
    }
}

/// Exact, by cases. Either the floor ends between two measured batch sizes, and both sides are linear; or it ends at one of
/// them, and `max(floor, gamma N_b)` is `gamma max(b, N_b)`. The best case that agrees with itself is the optimum.
fn fit_roofline(samples: &[Sample], shape: Shape) -> Option<CostFit> {
    let mut batches: Vec<f64> = samples.iter().map(|sample| sample.rows).collect();
    batches.sort_by(f64::total_cmp);
    batches.dedup();
    let between = batches.windows(2).take(batches.len().saturating_sub(2)).filter_map(|pair| {
        let row = |sample: &Sample| match sample.rows <= pair[0] {
            true => [1.0, 1.0, 0.0, sample.entries / 1e6],
            false => linear_row(sample),
        };
        let solution = solve(&equations(samples, row), [true, true, true, shape.reads_kv])?;
        let [_, floor, gamma, _] = solution.coefficients.into();
        let agrees = (gamma * pair[0] / 1e3..=gamma * pair[1] / 1e3).contains(&floor);
        agrees.then_some((solution, None))
    });
    let last = batches.len().saturating_sub(1);
    let at = batches[..last].iter().filter_map(|&end| {
        let row = |sample: &Sample| [1.0, 0.0, end.max(sample.rows) / 1e3, sample.entries / 1e6];
        let solution = solve(&equations(samples, row), [true, false, true, shape.reads_kv])?;
        // A floor that ends at the smallest batch is none.
        Some((solution, (end > batches[0]).then_some(end)))
    });
    let (solution, floor_ends_at) = at.chain(between).min_by(|(a, _), (b, _)| a.squares.total_cmp(&b.squares))?;
    CostFit::new(samples, shape, &solution, floor_ends_at)
}

fn linear_row(sample: &Sample) -> [f64; WIDTH] {
    [1.0, 0.0, sample.rows / 1e3, sample.entries / 1e6]
}

fn equations(samples: &[Sample], row: impl Fn(&Sample) -> [f64; WIDTH]) -> Vec<Equation> {
    let equation =
        |sample: &Sample| Equation { x: row(sample).map(|x| x / sample.scale_ms), y: sample.time_ms / sample.scale_ms };
    samples.iter().map(equation).collect()
}

impl CostFit {
    fn new(samples: &[Sample], shape: Shape, solution: &Solution, floor_ends_at: Option<f64>) -> Option<Self> {
        let mut free = solution.free;
        let mut expand = Matrix4::identity();
        if let Some(end) = floor_ends_at {
            // The floor is gamma times the batch size where it ends.
            expand[(FLOOR, FLOOR)] = 0.0;
            expand[(FLOOR, GAMMA)] = end / 1e3;
            free[FLOOR] = free[GAMMA];
        }
        let parameters = free.iter().filter(|&&free| free).count();
        let degrees = samples.len().checked_sub(parameters).filter(|&degrees| degrees > 0)?;
        let variance = solution.squares / degrees as f64;
        let covariance = expand * solution.inverse * expand.transpose() * variance;
        let mut fit = Self {
            shape,
            coefficients: (expand * solution.coefficients).into(),
            estimated: free,
            covariance: std::array::from_fn(|i| std::array::from_fn(|j| covariance[(i, j)])),
            degrees,
            r_squared: 0.0,
        };
        let times = samples.iter().map(|sample| (sample.time_ms, fit.time_ms(sample)));
        fit.r_squared = r_squared(&times.collect::<Vec<_>>());
        Some(fit)
    }

    /// What the fit says for a sample.
    pub fn time_ms(&self, sample: &Sample) -> f64 {
        let [delta, floor, gamma, alpha] = self.coefficients;
        delta + floor.max(gamma * sample.rows / 1e3) + alpha * sample.entries / 1e6
    }

    /// `(fit - time) / scale`.
    pub fn relative_error(&self, sample: &Sample) -> f64 {
        (self.time_ms(sample) - sample.time_ms) / sample.scale_ms
    }

    /// Half the width of a coefficient's 95% confidence interval (Student's t), or `None` if it was not estimated.
    pub fn half_width(&self, coefficient: usize) -> Option<f64> {
        let deviation = self.covariance[coefficient][coefficient].max(0.0).sqrt();
        self.estimated[coefficient].then(|| student_t_95(self.degrees) * deviation)
    }

    /// `B*(context) = (delta + floor) / (gamma + alpha L)` and half the width of its 95% interval (the delta method).
    pub fn saturation_batch(&self, context: u32) -> (f64, f64) {
        let [delta, floor, gamma, alpha] = self.coefficients;
        let kilo_entries = f64::from(context) / 1e3;
        let per_row_us = gamma + alpha * kilo_entries;
        let batch = (delta + floor) * 1e3 / per_row_us;
        let gradient = [1e3, 1e3, -batch, -batch * kilo_entries].map(|slope| slope / per_row_us);
        let covariance = self.covariance.iter().zip(gradient);
        let variance: f64 = covariance
            .map(|(row, left)| left * row.iter().zip(gradient).map(|(c, right)| c * right).sum::<f64>())
            .sum();
        (batch, student_t_95(self.degrees) * variance.max(0.0).sqrt())
    }

    /// The cost for a profile.
    pub fn stage_cost(&self) -> StageCost {
        let [delta_ms, floor_ms, gamma_us, alpha_ns] = self.coefficients.map(significant);
        StageCost { delta_ms, floor_ms, gamma_us, alpha_ns }
    }
}

/// `1 - sum (y - fit)^2 / sum (y - mean)^2` of (y, fit) pairs; 1 where nothing varies.
pub(crate) fn r_squared(pairs: &[(f64, f64)]) -> f64 {
    let mean = pairs.iter().map(|(y, _)| y).sum::<f64>() / pairs.len() as f64;
    let total: f64 = pairs.iter().map(|(y, _)| (y - mean).powi(2)).sum();
    let residual: f64 = pairs.iter().map(|(y, fit)| (y - fit).powi(2)).sum();
    if total == 0.0 { 1.0 } else { 1.0 - residual / total }
}

/// Rounds to six significant digits, more than any measurement has.
pub(crate) fn significant(value: f64) -> f64 {
    format!("{value:.5e}").parse().unwrap_or(value)
}
