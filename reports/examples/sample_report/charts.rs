//! Charts as sweeps, searches and calibration draw them, from made-up numbers.

use reports::chart::{Axis, Figure, Panel, Reference, Series, lines, scatter};

pub(crate) fn gallery() -> Figure {
    Figure::new("Charts from made-up numbers", vec![rates(), sweep(), prediction(), residuals()])
        .columns(2)
        .panel_size(520, 320)
}

fn rates() -> Panel {
    let curve = |capacity: f64| {
        (1..=24)
            .map(|n| f64::from(n) * 0.4)
            .filter(|rate| *rate < capacity)
            .map(|rate| (rate, 0.05 * capacity / (capacity - rate)))
            .collect()
    };
    let series = vec![Series::new("continuous batching", 0, curve(6.2)), Series::new("refill K=1", 2, curve(9.1))];
    lines("TTFT at p99", Axis::linear("arrival rate, requests/s").from_zero(), Axis::log("TTFT, s"), series)
        .with_reference(Reference::Horizontal(0.5, "SLO: 0.5 s".into()))
        .with_reference(Reference::Vertical(6.2, "baseline's capacity".into()))
}

fn sweep() -> Panel {
    let curve = |best: f64| (0..8).map(|n| 2_f64.powi(n)).map(|w| (w, best * w / (w + 9.0))).collect();
    let series = ["W sweep, Ouro 1.4B", "W sweep, Ouro 2.6B", "W sweep, Huginn 3.5B"];
    let series =
        series.iter().enumerate().map(|(style, name)| Series::new(*name, style, curve(2e4 / (1.0 + style as f64))));
    lines("Throughput", Axis::log2("W, sequences"), Axis::log("tokens/s"), series.collect())
}

fn prediction() -> Panel {
    let cloud =
        |offset: f64| (1..40).map(|n| f64::from(n) * 0.7).map(|x| (x, x * (1.0 + offset * (x * 9.0).sin()))).collect();
    let series = vec![Series::new("linear", 0, cloud(0.05)), Series::new("roofline", 1, cloud(0.02))];
    scatter("Predicted against measured", Axis::linear("measured, ms"), Axis::linear("predicted, ms"), series)
        .with_reference(Reference::Diagonal("predicted = measured".into()))
}

fn residuals() -> Panel {
    let cloud = (0..60).map(|n| (f64::from(1 + n % 8) * 8.0, 3.0 * (f64::from(n) * 1.7).sin())).collect();
    let series = vec![Series::new("linear", 0, cloud)];
    scatter("Residuals", Axis::linear("batch, rows"), Axis::linear("predicted - measured, %"), series)
        .with_reference(Reference::Horizontal(0.0, "predicted = measured".into()))
}
