//! Predicted against measured, in numbers.

use std::collections::BTreeMap;

use engine::batch::Stage;
use engine::metrics::{RequestRecord, RunMetrics};
use engine::units::Nanos;
use reports::validation::{MetricPair, StageError, StepPair};
use reports::{Bounds, Measure, Measures};

use super::Served;
use super::log::{Log, LoggedStep};

/// Step pairs kept for the plot; more are thinned evenly.
const STEP_PAIRS: usize = 4000;

/// The headline figures of one run; none of a run that served nothing.
pub(super) fn headline(metrics: &RunMetrics, bounds: Option<&Bounds>) -> Measures {
    if metrics.requests.finished == 0 {
        return Measures::default();
    }
    let measures = Measures::new(metrics);
    bounds.map_or(measures, |bounds| measures.with_bounds(bounds))
}

/// Pairs every figure that both sides have with the mean of the live runs.
pub(crate) fn compare(predicted: &Measures, live: &[Measures]) -> Vec<MetricPair> {
    let live: Vec<_> = live.iter().map(Measures::values).collect();
    let pair = |(index, (measure, predicted)): (usize, (&Measure, Option<f64>))| {
        let values: Vec<f64> = live.iter().map(|run| run[index]).collect::<Option<_>>()?;
        let predicted = predicted?;
        let measured = values.iter().sum::<f64>() / values.len() as f64;
        let (low, high) = values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), &v| (l.min(v), h.max(v)));
        let relative = |difference: f64| if measured == 0.0 { 0.0 } else { difference / measured };
        Some(MetricPair {
            name: measure.column.into(),
            predicted,
            measured,
            error: relative(predicted - measured),
            live_spread: relative(high - low),
        })
    };
    Measures::ALL.iter().zip(predicted.values()).enumerate().filter_map(pair).collect()
}

/// Kolmogorov-Smirnov distances between the predicted and the measured distributions over requests.
pub(crate) fn ks_distances(predicted: &Log, measured: &Log) -> BTreeMap<String, f64> {
    let distance = |value: fn(&RequestRecord) -> Option<Nanos>| {
        let sorted = |log: &Log| {
            let mut values: Vec<u64> = log.requests.iter().filter_map(|record| Some(value(record)?.0)).collect();
            values.sort_unstable();
            values
        };
        ks_distance(&sorted(predicted), &sorted(measured))
    };
    [
        ("ttft", distance(|record| Some(record.ttft()))),
        ("tpot", distance(RequestRecord::tpot)),
        ("e2e", distance(|record| Some(record.e2e()))),
        ("normalized", distance(|record| Some(record.normalized()))),
    ]
    .map(|(name, distance)| (name.into(), distance))
    .into()
}

/// The largest difference between two empirical distribution functions, of sorted samples.
fn ks_distance(left: &[u64], right: &[u64]) -> f64 {
    let below =
        |samples: &[u64], at: u64| samples.partition_point(|&sample| sample <= at) as f64 / samples.len().max(1) as f64;
    let points = left.iter().chain(right);
    points.map(|&at| (below(left, at) - below(right, at)).abs()).fold(0.0, f64::max)
}

/// How far step times are off, stage by stage; single steps only where both ran the same batches.
pub(super) fn stages(predicted: &Served, measured: &Served) -> Vec<StageError> {
    let mean_ms = |run: &Served, stage: Stage| {
        let totals = run.metrics.stage(stage);
        (totals.steps > 0).then(|| 1e3 * totals.busy_s / totals.steps as f64)
    };
    let same = same_steps(&predicted.log, &measured.log);
    let stage_error = |stage| {
        let (predicted_mean_ms, measured_mean_ms) = mean_ms(predicted, stage).zip(mean_ms(measured, stage))?;
        let off = |(p, m): (&LoggedStep, &LoggedStep)| (p.took.as_millis() - m.took.as_millis()).abs();
        let steps = measured.metrics.stage(stage).steps;
        let sum =
            same.then(|| pairs(predicted, measured).filter(|(step, _)| step.stage == stage).map(off).sum::<f64>());
        Some(StageError {
            stage,
            steps,
            predicted_mean_ms,
            measured_mean_ms,
            error: predicted_mean_ms / measured_mean_ms - 1.0,
            mean_absolute_error: sum.map(|sum| sum / steps as f64 / measured_mean_ms),
        })
    };
    Stage::ALL.into_iter().filter_map(stage_error).collect()
}

/// Predicted and measured times of the same steps, thinned; none if the runs made other batches.
pub(super) fn step_pairs(predicted: &Served, measured: &Served) -> Vec<StepPair> {
    if !same_steps(&predicted.log, &measured.log) {
        return Vec::new();
    }
    let stride = predicted.log.steps.len().div_ceil(STEP_PAIRS).max(1);
    let pair = |(predicted, measured): (&LoggedStep, &LoggedStep)| StepPair {
        stage: predicted.stage,
        predicted_ms: predicted.took.as_millis(),
        measured_ms: measured.took.as_millis(),
    };
    pairs(predicted, measured).step_by(stride).map(pair).collect()
}

/// The live steps, each with what the model says for it, in ms; without that if the runs made other batches.
pub(crate) fn step_times<'a>(
    predicted: &'a Served,
    measured: &'a Served,
) -> impl Iterator<Item = (&'a LoggedStep, Option<f64>)> {
    let same = same_steps(&predicted.log, &measured.log);
    let time = move |index: usize| same.then(|| predicted.log.steps[index].took.as_millis());
    measured.log.steps.iter().enumerate().map(move |(index, step)| (step, time(index)))
}

fn same_steps(predicted: &Log, measured: &Log) -> bool {
    !measured.steps.is_empty() && predicted.first_difference(measured).is_none()
}

fn pairs<'a>(predicted: &'a Served, measured: &'a Served) -> impl Iterator<Item = (&'a LoggedStep, &'a LoggedStep)> {
    predicted.log.steps.iter().zip(&measured.log.steps)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ks_distance_is_the_largest_gap() {
        let check = |left: &[u64], right: &[u64], distance| assert_eq!(ks_distance(left, right), distance);
        check(&[1, 2, 3, 4], &[1, 2, 3, 4], 0.0);
        check(&[1, 2], &[3, 4], 1.0);
        check(&[1, 2, 3, 4], &[3, 4, 5, 6], 0.5);
        check(&[], &[1], 1.0);
    }
}
