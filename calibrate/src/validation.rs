//! Which form predicts better: each point is left out once and predicted from the others.

use crate::cost::{CostFit, Form, Sample, Shape, fit};
use crate::error::CalibrateError;
use crate::measurements::{Point, Timed};
use crate::per_graph::{PerGraph, TableKind};

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

/// The forms of a stage's cost.
#[derive(Clone, Debug, PartialEq)]
pub struct Judged {
    /// What the forms were fitted to, a sample for each point.
    pub samples: Vec<Sample>,
    /// The paper's form.
    pub linear: Candidate,
    /// With a floor; `None` if there are too few batch sizes to tell a floor from a slope.
    pub roofline: Option<Candidate>,
    /// Which of the two describes all batch sizes better.
    pub form: Form,
    /// A table for each graph, if the device has graphs and these predict better than one line for all.
    pub per_graph: Option<PerGraph>,
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
    /// What the best form says for a sample.
    pub fn time_ms(&self, sample: &Sample) -> f64 {
        self.per_graph.as_ref().map_or_else(|| self.chosen().fit.time_ms(sample), |fit| fit.table.time_ms(sample))
    }

    /// Left-out errors of the best form, by sample.
    pub fn left_out(&self) -> Vec<Option<f64>> {
        match &self.per_graph {
            Some(fit) => fit.left_out.clone(),
            None => self.chosen().left_out.iter().copied().map(Some).collect(),
        }
    }

    /// Mean absolute relative error of the best form's left-out points.
    pub fn error_mean(&self) -> f64 {
        self.per_graph.as_ref().map_or_else(|| self.chosen().error_mean(), PerGraph::error_mean)
    }

    /// The better of the two forms.
    pub fn chosen(&self) -> &Candidate {
        match (self.form, &self.roofline) {
            (Form::Roofline, Some(roofline)) => roofline,
            _ => &self.linear,
        }
    }

    /// The other one.
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
pub fn judge(timed: Timed, samples: Vec<Sample>, reads_kv: bool) -> Result<Judged, CalibrateError> {
    if samples.len() < POINTS_MIN {
        return Err(CalibrateError::TooFew { timed, points: samples.len(), needed: POINTS_MIN });
    }
    check_grid(timed, &samples, reads_kv)?;
    let linear = candidate(timed, &samples, Shape { form: Form::Linear, reads_kv })?;
    let roofline = candidate(timed, &samples, Shape { form: Form::Roofline, reads_kv }).ok();
    let better = |roofline: &Candidate| is_clearly_better(roofline.left_out.iter().copied().map(Some), &linear);
    let form = if roofline.as_ref().is_some_and(better) { Form::Roofline } else { Form::Linear };
    Ok(Judged { linear, roofline, form, samples, per_graph: None })
}

/// The same for a device with graphs: a table for each is kept if its errors are smaller by as much.
///
/// # Errors
/// As [`judge`].
pub fn judge_graphs(timed: Timed, samples: Vec<Sample>, reads_kv: bool) -> Result<Judged, CalibrateError> {
    let judged = judge(timed, samples, reads_kv)?;
    let kind = match (timed, reads_kv) {
        (Timed::Prefill, _) => TableKind::Prefill,
        (_, true) => TableKind::DecodeOverKv,
        (_, false) => TableKind::Decode,
    };
    let per_graph = PerGraph::new(&judged.samples, kind);
    let better = |fit: &PerGraph| is_clearly_better(fit.left_out.iter().copied(), judged.chosen());
    let per_graph = per_graph.filter(better);
    Ok(Judged { per_graph, ..judged })
}

/// Different batch sizes and different contexts, whichever sample is left out.
///
/// Padding alone would tell gamma from alpha at a single context, with nothing but rounding to go by.
fn check_grid(timed: Timed, samples: &[Sample], reads_kv: bool) -> Result<(), CalibrateError> {
    let Sample { rows, context, .. } = samples[0];
    if samples.iter().all(|sample| sample.rows == rows) {
        return Err(CalibrateError::OneBatch { timed, rows });
    }
    // A prompt chunk tells them apart by its length alone: its pairs grow with the square.
    if !reads_kv || timed == Timed::Prefill {
        return Ok(());
    }
    if samples.iter().all(|sample| sample.context == context) {
        return Err(CalibrateError::OneContext { timed, context });
    }
    let decides = |sample: &&Sample| {
        let mut others = samples.iter().filter(|other| other != sample).map(|other| other.context);
        let first = others.next();
        others.all(|context| Some(context) == first)
    };
    match samples.iter().find(decides) {
        Some(&Sample { batch, context, .. }) => {
            Err(CalibrateError::Leverage { point: Point::new(timed, batch, context) })
        }
        None => Ok(()),
    }
}

fn candidate(timed: Timed, samples: &[Sample], shape: Shape) -> Result<Candidate, CalibrateError> {
    let all = fit(samples, shape).ok_or(CalibrateError::Collinear { timed })?;
    let error = |left: usize| {
        let sample = samples[left];
        let others: Vec<_> = samples.iter().enumerate().filter(|&(i, _)| i != left).map(|(_, other)| *other).collect();
        let point = Point::new(timed, sample.batch, sample.context);
        let fit = fit(&others, shape).ok_or(CalibrateError::Leverage { point })?;
        Ok(fit.relative_error(&sample))
    };
    let left_out = (0..samples.len()).map(error).collect::<Result<_, _>>()?;
    Ok(Candidate { fit: all, left_out })
}

/// Over the points that both predicted.
fn is_clearly_better(left_out: impl Iterator<Item = Option<f64>>, than: &Candidate) -> bool {
    let gains: Vec<_> =
        left_out.zip(&than.left_out).filter_map(|(error, other)| Some(other.abs() - error?.abs())).collect();
    let count = gains.len() as f64;
    let mean = gains.iter().sum::<f64>() / count;
    let variance = gains.iter().map(|gain| (gain - mean).powi(2)).sum::<f64>() / (count - 1.0);
    mean > (variance / count).sqrt()
}
