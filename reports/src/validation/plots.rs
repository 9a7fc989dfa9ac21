//! Predicted against measured step times.

use engine::batch::Stage;

use super::Validation;
use crate::chart::{Axis, Figure, Reference, Series, scatter};

/// One panel a scheduler, one colour a stage; `None` if no pair was kept.
pub(super) fn step_times(validation: &Validation) -> Option<Figure> {
    let panels = validation.schedulers.iter().map(|scheduler| {
        let series = Stage::ALL.into_iter().enumerate().filter_map(|(style, stage)| {
            let pairs = scheduler.step_pairs.iter().filter(|pair| pair.stage == stage);
            let points: Vec<_> = pairs.map(|pair| (pair.measured_ms, pair.predicted_ms)).collect();
            (!points.is_empty()).then(|| Series::new(stage.name(), style, points))
        });
        let (x, y) = (Axis::log("measured, ms"), Axis::log("predicted, ms"));
        scatter(&scheduler.name, x, y, series.collect()).with_reference(Reference::Diagonal("equal".into()))
    });
    let panels: Vec<_> = panels.filter(|panel| !panel.is_empty()).collect();
    (!panels.is_empty()).then(|| Figure::new("Step times", panels).columns(2).panel_size(460, 360))
}
