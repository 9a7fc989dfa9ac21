//! `sim capacity`: every scheduler's capacity and its latencies over the rate (the paper's Figures 6, 12 and 13).

use engine::metrics::{LatencySummary, RunMetrics};
use reports::chart::{Axis, Figure, Panel, Reference, Series, lines};
use reports::{Bracket, Cell, Grid, Study};
use serde::Serialize;

use crate::parallel;
use crate::run::capacity::{Found, Tried, at_rate, describe, rate, search};
use crate::run::plan::{Plan, PlanError, Planned};

/// Rates of a curve, evenly spaced up to a little beyond the highest capacity.
const RATES: u32 = 12;

/// How far beyond the highest capacity a curve goes: enough to see latency rise.
const BEYOND: f64 = 1.25;

/// One scheduler's capacity and its runs over the rate.
#[derive(Clone, Debug)]
pub struct Curve {
    /// The scheduler.
    pub name: String,
    /// Its capacity.
    pub found: Found,
    /// Runs at rates that are the same for all schedulers.
    pub over_rate: Vec<Tried>,
}

/// Searches the capacity of every scheduler, then runs all of them at the same rates.
///
/// # Errors
/// The scenario has no SLO, or its arrivals have no rate.
pub fn curves(plan: &Plan) -> Result<Vec<Curve>, PlanError> {
    let fault = |path: &str, reason: &str| PlanError { path: path.into(), reason: reason.into() };
    let slo = plan.slo().ok_or_else(|| fault("slo", "a capacity needs limits, such as `slo: { ttft_ms: 2000 }`"))?;
    let no_rate = || {
        fault("workload.arrivals", "a capacity needs arrivals with a rate: poisson or gamma (the search starts there)")
    };
    let start = rate(plan).ok_or_else(no_rate)?;
    let found = parallel::try_map(plan.schedulers.len(), |index| {
        search(plan, &plan.schedulers[index], slo).ok_or_else(no_rate)
    })?;
    let highest = found.iter().filter_map(|found| found.rates.carried_per_s).max_by(f64::total_cmp).unwrap_or(start);
    let rates: Vec<f64> = (1..=RATES).map(|n| highest * BEYOND * f64::from(n) / f64::from(RATES)).collect();
    let Ok(runs) = parallel::try_map(plan.schedulers.len() * rates.len(), |index| {
        let (planned, rate_per_s) = (&plan.schedulers[index / rates.len()], rates[index % rates.len()]);
        let run = at_rate(plan, planned, rate_per_s);
        Ok::<_, std::convert::Infallible>(run.map(|metrics| Tried::new(&slo, rate_per_s, metrics)))
    });
    let curve = |((planned, found), runs): ((&Planned, Found), &[Option<Tried>])| Curve {
        name: planned.name.clone(),
        found,
        over_rate: runs.iter().flatten().cloned().collect(),
    };
    Ok(plan.schedulers.iter().zip(found).zip(runs.chunks(rates.len())).map(curve).collect())
}

/// The table of every run, the capacities and the plot.
pub fn study(plan: &Plan, curves: &[Curve]) -> Study<Summary> {
    let mut grid = Grid::new([
        "scheduler",
        "found by",
        "requests/s",
        "carried",
        "within SLO, %",
        "saturated",
        "TTFT p50, ms",
        "TTFT p99, ms",
        "TPOT p50, ms",
        "TPOT p99, ms",
        "normalized mean, ms",
        "normalized p99, ms",
    ]);
    for curve in curves {
        let searched = curve.found.tried.iter().map(|tried| ("search", tried));
        for (by, tried) in searched.chain(curve.over_rate.iter().map(|tried| ("curve", tried))) {
            grid.push(row(&curve.name, by, tried));
        }
    }
    Study {
        name: "capacity",
        grid,
        summary: Summary {
            slo: plan.slo().map(|slo| describe(&slo)).unwrap_or_default(),
            schedulers: curves.iter().map(Capacity::of).collect(),
        },
        scenario_yaml: plan.yaml(),
        figures: vec![("latency_over_rate", figure(plan, curves))],
    }
}

/// What `summary.json` holds.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// The limits, in words.
    pub slo: String,
    /// One entry a scheduler.
    pub schedulers: Vec<Capacity>,
}

/// One scheduler's capacity.
#[derive(Clone, Debug, Serialize)]
pub struct Capacity {
    /// The scheduler.
    pub name: String,
    /// The capacity, in requests per second that arrive, refused ones among them; `None` if it was not found.
    pub capacity_per_s: Option<f64>,
    /// Between which rates it lies, or why it was not found.
    #[serde(flatten)]
    pub rates: Bracket,
    /// Rates that the search tried, in order, and whether they were carried; `None` if arrivals were over too soon to tell.
    pub tried: Vec<(f64, Option<bool>)>,
}

impl Capacity {
    fn of(curve: &Curve) -> Self {
        let Found { rates, tried } = &curve.found;
        Self {
            name: curve.name.clone(),
            capacity_per_s: rates.capacity_per_s(),
            rates: rates.clone(),
            tried: tried.iter().map(|tried| (tried.rate_per_s, tried.carried)).collect(),
        }
    }
}

fn row(name: &str, by: &str, tried: &Tried) -> Vec<Cell> {
    let word = |yes: Option<bool>| Cell::text(yes.map_or("too short", |yes| if yes { "yes" } else { "no" }));
    let ms = |summary: &LatencySummary, seconds: f64| Cell::from((summary.count > 0).then_some(1e3 * seconds));
    let RunMetrics { ttft, tpot, normalized, .. } = &tried.metrics;
    vec![
        Cell::text(name),
        Cell::text(by),
        tried.rate_per_s.into(),
        word(tried.carried),
        tried.metrics.goodput.map(|goodput| 100.0 * goodput.share).into(),
        word(tried.metrics.saturated()),
        ms(ttft, ttft.p50),
        ms(ttft, ttft.p99),
        ms(tpot, tpot.p50),
        ms(tpot, tpot.p99),
        ms(normalized, normalized.mean),
        ms(normalized, normalized.p99),
    ]
}

fn figure(plan: &Plan, curves: &[Curve]) -> Figure {
    let panel = |title: &str, unit: &str, pick: fn(&RunMetrics) -> f64| -> Panel {
        let series = curves.iter().enumerate();
        let series: Vec<_> =
            series.map(|(index, curve)| Series::new(&curve.name, index, points(curve, pick))).collect();
        // Latency rises by orders of magnitude past saturation.
        let y = Axis::log(format!("{title}, {unit}"));
        lines(title, Axis::linear("requests/s").from_zero(), y, series)
    };
    let mut panels = vec![
        panel("mean normalized latency", "ms/token", |metrics| 1e3 * metrics.normalized.mean),
        panel("p99 normalized latency", "ms/token", |metrics| 1e3 * metrics.normalized.p99),
        panel("mean TTFT", "ms", |metrics| 1e3 * metrics.ttft.mean),
        panel("mean TPOT", "ms", |metrics| 1e3 * metrics.tpot.mean),
    ];
    if let Some(limit) = plan.slo().and_then(|slo| slo.mean?.normalized_ms) {
        let first = panels.remove(0);
        panels.insert(0, first.with_reference(Reference::Horizontal(limit, "SLO".into())));
    }
    Figure::new("Latency over the request rate", panels).columns(2).panel_size(500, 300)
}

/// A curve's runs and the search's, by rate.
fn points(curve: &Curve, pick: fn(&RunMetrics) -> f64) -> Vec<(f64, f64)> {
    let highest = curve.over_rate.iter().map(|tried| tried.rate_per_s).fold(0.0, f64::max);
    let searched = curve.found.tried.iter().filter(|tried| tried.rate_per_s <= highest);
    let served = curve.over_rate.iter().chain(searched).filter(|tried| tried.metrics.requests.finished > 0);
    let mut points: Vec<_> = served.map(|tried| (tried.rate_per_s, pick(&tried.metrics))).collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    points
}
