//! Which form predicts better: each point is left out once and predicted from the others.

use crate::cost::{CostFit, Form, Sample, Shape, fit};
use crate::error::CalibrateError;
use crate::measurements::Stage;

/// Points that a judged fit needs: with one left out, one more than the roofline's four parameters.
pub const POINTS_MIN: usize = 6;

/// A form, fitted to all points and judged on left-out ones.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// The fit to all points.
    pub fit: CostFit,
    /// `(prediction - time) / time` of each point, predicted from the others.
    pub left_out: Vec<f64>,
}

/// Both forms of a stage's cost.
#[derive(Clone, Debug, PartialEq)]
pub struct Judged {
    /// The points.
    pub samples: Vec<Sample>,
    /// The paper's form.
    pub linear: Candidate,
    /// With a floor; `None` if there are too few batch sizes to tell a floor from a slope.
    pub roofline: Option<Candidate>,
    /// Which goes into the profile.
    pub form: Form,
}

impl Candidate {
    /// Mean absolute relative error of left-out points.
    pub fn error_mean(&self) -> f64 {
        self.left_out.iter().map(|error| error.abs()).sum::<f64>() / self.left_out.len() as f64
    }

    /// Worst absolute relative error of a left-out point.
    pub fn error_max(&self) -> f64 {
        self.left_out.iter().map(|error| error.abs()).fold(0.0, f64::max)
    }
}

impl Judged {
    /// The form that goes into the profile.
    pub fn chosen(&self) -> &Candidate {
        match (self.form, &self.roofline) {
            (Form::Roofline, Some(roofline)) => roofline,
            _ => &self.linear,
        }
    }

    /// The form that does not.
    pub fn rejected(&self) -> Option<&Candidate> {
        match self.form {
            Form::Linear => self.roofline.as_ref(),
            Form::Roofline => Some(&self.linear),
        }
    }
}

/// Fits both forms and chooses by cross-validation.
///
/// The roofline contains the linear form, so it wins by luck every other time where the truth is linear. It is chosen only
/// if its errors are smaller by more than the standard error of the difference.
///
/// # Errors
/// Too few points, or points that cannot tell the linear form's coefficients apart, whichever one is left out.
pub fn judge(stage: Stage, samples: Vec<Sample>, reads_kv: bool) -> Result<Judged, CalibrateError> {
    if samples.len() < POINTS_MIN {
        return Err(CalibrateError::TooFew { stage, points: samples.len(), needed: POINTS_MIN });
    }
    check_grid(stage, &samples, reads_kv)?;
    let linear = candidate(stage, &samples, Shape { form: Form::Linear, reads_kv })?;
    let roofline = candidate(stage, &samples, Shape { form: Form::Roofline, reads_kv }).ok();
    let form = if roofline.as_ref().is_some_and(|roofline| is_clearly_better(roofline, &linear)) {
        Form::Roofline
    } else {
        Form::Linear
    };
    Ok(Judged { linear, roofline, form, samples })
}

/// Different batch sizes and different contexts, whichever sample is left out.
///
/// Padding alone would tell gamma from alpha at a single context, with nothing but rounding to go by.
fn check_grid(stage: Stage, samples: &[Sample], reads_kv: bool) -> Result<(), CalibrateError> {
    let Sample { rows, context, .. } = samples[0];
    if samples.iter().all(|sample| sample.rows == rows) {
        return Err(CalibrateError::OneBatch { stage, rows });
    }
    // A prompt chunk tells them apart by its length alone: its pairs grow with the square.
    if !reads_kv || stage == Stage::Prefill {
        return Ok(());
    }
    if samples.iter().all(|sample| sample.context == context) {
        return Err(CalibrateError::OneContext { stage, context });
    }
    let decides = |sample: &&Sample| {
        let mut others = samples.iter().filter(|other| other != sample).map(|other| other.context);
        let first = others.next();
        others.all(|context| Some(context) == first)
    };
    match samples.iter().find(decides) {
        Some(&Sample { batch, context, .. }) => Err(CalibrateError::Leverage { stage, batch, context }),
        None => Ok(()),
    }
}

fn candidate(stage: Stage, samples: &[Sample], shape: Shape) -> Result<Candidate, CalibrateError> {
    let all = fit(samples, shape).ok_or(CalibrateError::Collinear { stage })?;
    let error = |left: usize| {
        let sample = samples[left];
        let others: Vec<_> = samples.iter().enumerate().filter(|&(i, _)| i != left).map(|(_, other)| *other).collect();
        let fit = fit(&others, shape).ok_or(CalibrateError::Leverage {
            stage,
            batch: sample.batch,
            context: sample.context,
        })?;
        Ok(fit.relative_error(&sample))
    };
    let left_out = (0..samples.len()).map(error).collect::<Result<_, _>>()?;
    Ok(Candidate { fit: all, left_out })
}

fn is_clearly_better(candidate: &Candidate, than: &Candidate) -> bool {
    let gains: Vec<_> =
        candidate.left_out.iter().zip(&than.left_out).map(|(error, other)| other.abs() - error.abs()).collect();
    let count = gains.len() as f64;
    let mean = gains.iter().sum::<f64>() / count;
    let variance = gains.iter().map(|gain| (gain - mean).powi(2)).sum::<f64>() / (count - 1.0);
    mean > (variance / count).sqrt()
}
