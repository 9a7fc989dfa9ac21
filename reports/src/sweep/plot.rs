//! The sweep as lines: over the first swept number, one line per scheduler and further values.

use super::{Scalar, Sweep, SweepRow};
use crate::chart::{Axis, BarGroup, Bars, Figure, Panel, Series, bars, lines};
use crate::definitions::{self as d, Definition};
use crate::format::number;
use crate::measures::Measures;
use crate::plots::Plot;

/// More lines than this cannot be told apart.
const LINES: usize = 14;

/// A figure to plot, and the factor to its unit.
struct Shown {
    definition: Definition,
    statistic: &'static str,
    unit: &'static str,
    factor: f64,
    figure: fn(&Measures) -> Option<f64>,
}

const OFFLINE: [Shown; 3] = [
    Shown::new(d::THROUGHPUT, "", "tokens/s", 1.0, |m| m.throughput_tokens_per_s),
    Shown::new(d::SPEEDUP, "", "×", 1.0, |m| m.speedup),
    Shown::new(d::REALISED_SHARE, "", "%", 100.0, |m| m.realised_share),
];

const ONLINE: [Shown; 4] = [
    Shown::new(d::THROUGHPUT, "", "tokens/s", 1.0, |m| m.throughput_tokens_per_s),
    Shown::new(d::NORMALIZED, "mean", "ms/token", 1e3, |m| m.normalized_mean_s),
    Shown::new(d::TTFT, "p99", "s", 1.0, |m| m.ttft_p99_s),
    Shown::new(d::WITHIN_SLO, "", "%", 100.0, |m| m.within_slo_share),
];

impl Shown {
    const fn new(
        definition: Definition,
        statistic: &'static str,
        unit: &'static str,
        factor: f64,
        figure: fn(&Measures) -> Option<f64>,
    ) -> Self {
        Self { definition, statistic, unit, factor, figure }
    }

    fn title(&self) -> String {
        [self.definition.name, self.statistic].join(" ").trim_end().to_owned()
    }

    fn label(&self) -> String {
        format!("{}, {}", self.title(), self.unit)
    }

    fn value(&self, row: &SweepRow) -> Option<f64> {
        row.mean(self.figure).map(|value| self.factor * value)
    }
}

/// The plot, unless no figure has a value.
pub(super) fn plot(sweep: &Sweep) -> Option<Plot> {
    let shown: &[Shown] = if sweep.online { &ONLINE } else { &OFFLINE };
    let axis = (0..sweep.fields.len()).find(|&index| sweep.rows.iter().all(|row| row.values[index].number().is_some()));
    let lines = Lines::new(sweep, axis);
    let panels = shown.iter().map(|shown| match axis {
        Some(axis) => over_numbers(sweep, &lines, axis, shown),
        None => over_names(sweep, &lines, shown),
    });
    let panels: Vec<Panel> = panels.filter(|panel| !panel.is_empty()).collect();
    (!panels.is_empty()).then(|| Plot {
        stem: "sweep",
        caption: if lines.left_out { "Only the first lines are drawn; sweep.csv has all points." } else { "" },
        figure: Figure::new(&sweep.title, panels),
    })
}

/// Which line each row is on.
struct Lines {
    names: Vec<String>,
    /// By row; `None` for rows of lines that are not drawn.
    line_of: Vec<Option<usize>>,
    left_out: bool,
}

impl Lines {
    /// Rows that differ only in the field at `axis` (or in the first field) share a line.
    fn new(sweep: &Sweep, axis: Option<usize>) -> Self {
        let schedulers = sweep.schedulers();
        let along = axis.unwrap_or(0);
        let mut names: Vec<String> = Vec::new();
        let mut left_out = false;
        let line = |row: &SweepRow| {
            let rest = sweep.describe(&row.values, |index| index != along);
            let name = schedulers[&row.entry].clone();
            let name = if rest.is_empty() { name } else { format!("{name}, {rest}") };
            let at = names.iter().position(|known| *known == name);
            if at.is_none() && names.len() == LINES {
                left_out = true;
                return None;
            }
            Some(at.unwrap_or_else(|| {
                names.push(name);
                names.len() - 1
            }))
        };
        let line_of = sweep.rows.iter().map(line).collect();
        Self { names, line_of, left_out }
    }

    /// The rows of a line.
    fn rows<'a>(&'a self, sweep: &'a Sweep, line: usize) -> impl Iterator<Item = &'a SweepRow> {
        sweep.rows.iter().zip(&self.line_of).filter(move |(_, of)| **of == Some(line)).map(|(row, _)| row)
    }
}

fn over_numbers(sweep: &Sweep, lines_of: &Lines, axis: usize, shown: &Shown) -> Panel {
    let at = |row: &SweepRow| row.values[axis].number();
    let series = lines_of.names.iter().enumerate().map(|(index, name)| {
        let rows = lines_of.rows(sweep, index);
        let mut points: Vec<_> = rows.filter_map(|row| Some((at(row)?, shown.value(row)?))).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        Series::new(name, index, points)
    });
    let series = series.filter(|series| !series.points.is_empty()).collect();
    let x = x_axis(&sweep.fields[axis], sweep.rows.iter().filter_map(at));
    lines(shown.title(), x, Axis::linear(shown.label()).from_zero(), series)
}

/// Powers of two, as batch sizes are, are spaced evenly.
fn x_axis(field: &str, values: impl Iterator<Item = f64> + Clone) -> Axis {
    let power_of_two = |value: f64| value > 0.0 && value.log2().fract() == 0.0;
    let varied = values.clone().any(|value| Some(value) != values.clone().next());
    if varied && values.clone().all(power_of_two) { Axis::log2(field) } else { Axis::linear(field) }
}

/// Without a number among the fields: bars over the first field's values.
fn over_names(sweep: &Sweep, lines_of: &Lines, shown: &Shown) -> Panel {
    let mut categories: Vec<&Scalar> = Vec::new();
    for row in &sweep.rows {
        if !categories.contains(&&row.values[0]) {
            categories.push(&row.values[0]);
        }
    }
    let group = |(index, name): (usize, &String)| {
        let value = |category: &&Scalar| {
            lines_of.rows(sweep, index).find(|row| row.values[0] == **category).and_then(|row| shown.value(row))
        };
        BarGroup { name: name.clone(), style: index, values: categories.iter().map(value).collect() }
    };
    let groups: Vec<_> = lines_of.names.iter().enumerate().map(group).collect();
    let any = groups.iter().flat_map(|group| &group.values).any(Option::is_some);
    let names = if any { categories.iter().map(ToString::to_string).collect() } else { Vec::new() };
    let chart = Bars { categories: names, groups, marks: Vec::new(), format: number };
    bars(shown.title(), &sweep.fields[0], Axis::linear(shown.label()), chart)
}

#[cfg(test)]
mod tests {
    use super::super::tests::sweep;
    use super::*;

    #[test]
    fn rows_that_differ_only_along_the_axis_share_a_line() {
        let at = |w: u32, name: &str| [Scalar::from(w), Scalar::Text(name.into())];
        let points = [at(8, "a"), at(8, "b"), at(16, "a"), at(16, "b")];
        let rows: Vec<(&[Scalar], &str, f64)> = points.iter().map(|at| (&at[..], "refill K=1", 1.0)).collect();
        let lines = Lines::new(&sweep(&["scheduler.max_num_seqs", "exits.preset.name"], &rows), Some(0));
        assert_eq!(lines.names, ["refill K=1, exits.preset.name = a", "refill K=1, exits.preset.name = b"]);
        assert_eq!(lines.line_of, [Some(0), Some(1), Some(0), Some(1)]);
    }
}
