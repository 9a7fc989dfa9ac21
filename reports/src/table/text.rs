//! Tables as aligned text.

use super::{Table, tables};
use crate::aligned::{Side, aligned};
use crate::headline::headline;
use crate::report::Report;

/// Columns of a terminal that a table keeps within, if its rows can be split at all.
const WIDTH: usize = 120;
const GAP: &str = "  ";

/// The headline and the summary tables, for the terminal.
pub fn summary_text(report: &Report) -> String {
    let mut text = format!("{}\n", report.title);
    for sentence in headline(report) {
        text.push_str(&format!("  {sentence}\n"));
    }
    for table in tables(report) {
        text.push('\n');
        render(&table, &mut text);
    }
    text
}

/// Appends a table; one that is too wide is told in several blocks, each with some of its columns.
pub(crate) fn render(table: &Table, text: &mut String) {
    let rows = || table.sections.iter().flat_map(|section| &section.rows);
    let names = 2 + rows().map(|row| width(&row.name)).max().unwrap_or(0);
    let units = rows().map(|row| width(&row.unit)).max().unwrap_or(0);
    let widths: Vec<usize> = (0..table.columns.len())
        .map(|column| rows().map(|row| width(&row.cells[column])).chain([width(&table.columns[column])]).max())
        .map(|width| width.unwrap_or(0))
        .collect();
    let mut from = 0;
    while from < widths.len() {
        let mut used = names + GAP.len() + units;
        let mut to = from;
        while to < widths.len() && (to == from || used + GAP.len() + widths[to] <= WIDTH) {
            used += GAP.len() + widths[to];
            to += 1;
        }
        if from > 0 {
            text.push('\n');
        }
        // Name and unit are one cell, so that a table without units keeps its shape.
        let line = |name: &str, unit: &str, cells: &[String]| {
            [&[format!("{name:names$}{GAP}{unit:units$}")], &cells[from..to]].concat()
        };
        let shown = rows().map(|row| line(&format!("  {}", row.name), &row.unit, &row.cells));
        let sides = std::iter::once(Side::Left).chain(std::iter::repeat_n(Side::Right, to - from));
        let lines = aligned(sides, std::iter::once(line("", "", &table.columns)).chain(shown));
        let mut lines = lines.lines();
        text.extend(lines.next().map(|header| format!("{header}\n")));
        // A heading is as wide as it likes.
        for section in &table.sections {
            text.push_str(&format!("{}\n", section.heading));
            text.extend(lines.by_ref().take(section.rows.len()).map(|line| format!("{line}\n")));
        }
        from = to;
    }
}

fn width(text: &str) -> usize {
    text.chars().count()
}
