//! 95% confidence intervals by Student's t.

use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, StudentsT};

/// A mean, and how far the truth may be from it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Arithmetic mean of the samples.
    pub mean: f64,
    /// Half the width of the 95% interval around it; `None` for a single sample.
    pub half_width: Option<f64>,
}

impl Interval {
    /// Of independent samples, such as repeats over seeds; `None` without any.
    pub fn of(samples: &[f64]) -> Option<Self> {
        let n = samples.len() as f64;
        let mean = samples.iter().sum::<f64>() / n;
        match samples.len() {
            0 => None,
            1 => Some(Self { mean, half_width: None }),
            count => {
                let squares: f64 = samples.iter().map(|sample| (sample - mean).powi(2)).sum();
                let half_width = student_t_95(count - 1) * (squares / (n - 1.0) / n).sqrt();
                Some(Self { mean, half_width: Some(half_width) })
            }
        }
    }
}

/// The two-sided 95% quantile of Student's t, or infinity without a degree of freedom.
pub fn student_t_95(degrees: usize) -> f64 {
    StudentsT::new(0.0, 1.0, degrees as f64).map_or(f64::INFINITY, |t| t.inverse_cdf(0.975))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_the_textbooks() {
        // Mean 3, standard deviation sqrt(2.5), t of 4 degrees 2.776445.
        let interval = Interval::of(&[1.0, 2.0, 3.0, 4.0, 5.0]).expect("five samples");
        assert_eq!(interval.mean, 3.0);
        let half_width = interval.half_width.expect("more than one");
        assert!((half_width - 2.776_445 * (2.5_f64 / 5.0).sqrt()).abs() < 1e-5, "{half_width}");
    }

    #[test]
    fn one_sample_has_a_mean_and_no_interval() {
        assert_eq!(Interval::of(&[7.0]), Some(Interval { mean: 7.0, half_width: None }));
        assert_eq!(Interval::of(&[]), None);
    }
}
