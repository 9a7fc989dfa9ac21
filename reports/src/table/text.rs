//! Tables as aligned text.

use super::{Table, tables};
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
fn render(table: &Table, text: &mut String) {
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
        let mut line = |name: &str, unit: &str, cells: &[String]| {
            let mut line = format!("{}{GAP}{}", left(name, names), left(unit, units));
            for (cell, &width) in cells[from..to].iter().zip(&widths[from..to]) {
                line.push_str(GAP);
                line.push_str(&right(cell, width));
            }
            text.push_str(line.trim_end());
            text.push('\n');
        };
        line("", "", &table.columns);
        for section in &table.sections {
            line(&section.heading, "", &vec![String::new(); table.columns.len()]);
            for row in &section.rows {
                line(&format!("  {}", row.name), &row.unit, &row.cells);
            }
        }
        from = to;
    }
}

fn width(text: &str) -> usize {
    text.chars().count()
}

fn left(text: &str, columns: usize) -> String {
    format!("{text}{}", " ".repeat(columns.saturating_sub(width(text))))
}

fn right(text: &str, columns: usize) -> String {
    format!("{}{text}", " ".repeat(columns.saturating_sub(width(text))))
}
