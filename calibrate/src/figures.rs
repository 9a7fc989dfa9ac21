//! A calibration as figures: the paper's latency against batch size (its Figures 4 and 9) with the physical floor, and what the fit
//! leaves over.

use engine::profile::Profile;
use reports::chart::{Axis, Figure, Panel, Reference, Series, lines, scatter};

use crate::calibration::{Calibration, Setup};
use crate::cost::Sample;

/// A figure and its file name without extension.
pub type Named = (&'static str, Figure);

/// Batch sizes that make a curve.
const CURVE: usize = 3;

/// Panels at most; more contexts are thinned evenly.
const PANELS: usize = 8;

/// The figures' file names without extension.
pub const NAMES: [&str; 2] = ["latency", "residuals"];

/// Both figures.
pub fn figures(calibration: &Calibration, setup: &Setup, profile: &Profile) -> Vec<Named> {
    let [first, second] = NAMES;
    vec![(first, latency(calibration, setup, profile)), (second, residuals(calibration, profile))]
}

/// A panel for each context, or some of many, that has a curve: measured core steps, the line through all batch sizes with its
/// delta and B*, the floor, and a device that only computes.
fn latency(calibration: &Calibration, setup: &Setup, profile: &Profile) -> Figure {
    let core = &calibration.core;
    let mut contexts: Vec<u32> = core.samples.iter().map(|sample| sample.context).collect();
    contexts.sort_unstable();
    contexts.dedup();
    let batches = |context: u32| core.samples.iter().filter(|sample| sample.context == context).count();
    contexts.retain(|&context| batches(context) >= CURVE);
    let panel = |&context: &u32| {
        let samples = || core.samples.iter().filter(|sample| sample.context == context);
        let curve = |value: &dyn Fn(&Sample) -> f64| {
            let mut points: Vec<_> = samples().map(|sample| (f64::from(sample.batch), value(sample))).collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            points
        };
        let floor = &setup.base.core;
        // Where rows are few, compute alone takes next to nothing, and would squeeze all other curves.
        let floor_ms = |sample: &Sample| floor.time_ms(sample.batch, sample.entries as u64);
        let low = samples().map(floor_ms).fold(f64::INFINITY, f64::min);
        let high = samples().map(|sample| sample.time_ms).fold(low, f64::max);
        let mut compute = curve(&|sample| floor.gamma_us * f64::from(sample.batch) / 1e3);
        compute.retain(|&(_, ms)| ms >= 0.8 * low);
        let series = vec![
            Series::new("measured", 0, curve(&|sample| sample.time_ms)),
            Series::new("line: delta + gamma N_b + alpha N_c", 1, curve(&|sample| core.linear.fit.time_ms(sample))),
            Series::new("floor: weights and KV over bandwidth", 2, curve(&floor_ms)),
            Series::new("compute alone", 3, compute),
        ];
        let (saturation, _) = core.linear.fit.saturation_batch(context);
        let title = format!("context {context}");
        let times = Axis::log("core step, ms").within(0.8 * low, 1.25 * high);
        lines(title, Axis::log2("batch size"), times, series)
            .with_reference(Reference::Horizontal(core.linear.fit.coefficients[0], "delta of that line".into()))
            .with_reference(Reference::Vertical(saturation, "B* of that line".into()))
    };
    let every = contexts.len().div_ceil(PANELS).max(1);
    let panels: Vec<Panel> = contexts.iter().step_by(every).map(panel).collect();
    Figure::new(format!("{}: one core application", profile.name), panels).columns(2).panel_size(480, 320)
}

/// What each point is off by: of the profile's fit, and predicted from the other points.
fn residuals(calibration: &Calibration, profile: &Profile) -> Figure {
    let core = &calibration.core;
    let percent = |sample: &Sample, predicted: f64| {
        (f64::from(sample.batch), (predicted - sample.time_ms) / sample.scale_ms * 1e2)
    };
    let fit = core.samples.iter().map(|sample| percent(sample, core.time_ms(sample))).collect();
    let linear = core.samples.iter().map(|sample| percent(sample, core.linear.fit.time_ms(sample))).collect();
    let left_out = core.samples.iter().zip(core.left_out());
    let left_out = left_out.filter_map(|(sample, error)| Some((f64::from(sample.batch), error? * 1e2))).collect();
    let panel = |title: &str, series| {
        scatter(title, Axis::log2("batch size"), Axis::linear("error, %"), vec![series])
            .with_reference(Reference::Horizontal(0.0, "exact".into()))
    };
    let panels = vec![
        panel("profile", Series::new("profile", 1, fit)),
        panel("profile, predicted from the other points", Series::new("left out", 4, left_out)),
        panel("delta + gamma N_b + alpha N_c", Series::new("linear form", 2, linear)),
    ];
    Figure::new(format!("{}: errors of core steps", profile.name), panels).columns(3).panel_size(380, 300)
}
