//! Plain tables: columns, rows and cells, as text and as CSV.

use crate::aligned::{Side, aligned};
use crate::format::number;

/// One value of a table.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// Words.
    Text(String),
    /// A number: four digits for people, all of them in CSV.
    Number(f64),
    /// Nothing was measured.
    Missing,
}

/// A table without sections or definitions, for studies whose columns depend on what is studied.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Grid {
    columns: Vec<String>,
    rows: Vec<Vec<Cell>>,
}

impl Grid {
    /// A table without rows.
    pub fn new<T: Into<String>>(columns: impl IntoIterator<Item = T>) -> Self {
        Self { columns: columns.into_iter().map(Into::into).collect(), rows: Vec::new() }
    }

    /// Adds a row. Panics unless it has a cell for every column.
    pub fn push(&mut self, row: Vec<Cell>) {
        assert_eq!(row.len(), self.columns.len(), "a row has as many cells as the table has columns");
        self.rows.push(row);
    }

    /// Aligned for a terminal; numbers stand right.
    pub fn text(&self) -> String {
        let words = |at: usize| self.rows.iter().all(|row| !matches!(row[at], Cell::Number(_)));
        let sides = (0..self.columns.len()).map(|at| if words(at) { Side::Left } else { Side::Right });
        let shown = self.rows.iter().map(|row| row.iter().map(Cell::shown).collect());
        aligned(sides, std::iter::once(self.columns.clone()).chain(shown))
    }

    /// As CSV, with a header.
    pub fn csv(&self) -> String {
        let mut writer = csv::Writer::from_writer(Vec::new());
        let rows = self.rows.iter().map(|row| row.iter().map(Cell::exact).collect());
        for record in std::iter::once(self.columns.clone()).chain(rows) {
            writer.write_record(record).expect("rows are as long as the header, and memory takes them");
        }
        let bytes = writer.into_inner().expect("memory takes every row");
        String::from_utf8(bytes).expect("it was written as UTF-8")
    }
}

impl Cell {
    /// Words.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    fn shown(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Number(value) => number(*value),
            Self::Missing => "–".into(),
        }
    }

    fn exact(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Number(value) => value.to_string(),
            Self::Missing => String::new(),
        }
    }
}

impl From<f64> for Cell {
    fn from(value: f64) -> Self {
        if value.is_finite() { Self::Number(value) } else { Self::Missing }
    }
}

impl From<Option<f64>> for Cell {
    fn from(value: Option<f64>) -> Self {
        value.map_or(Self::Missing, Self::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grid_is_aligned_for_people_and_exact_for_programs() {
        let mut grid = Grid::new(["scheduler", "rate"]);
        grid.push(vec![Cell::text("refill, K=1"), Cell::Number(1234.5678)]);
        grid.push(vec![Cell::text("none"), Cell::Missing]);
        assert_eq!(grid.text(), "scheduler     rate\nrefill, K=1  1,235\nnone             –\n");
        assert_eq!(grid.csv(), "scheduler,rate\n\"refill, K=1\",1234.5678\nnone,\n");
    }
}
