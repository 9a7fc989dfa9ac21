//! Text in columns, for terminals.

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

/// Where a column's cells stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

/// Rows of as many cells as there are `columns`, each column as wide as its widest cell, two spaces apart.
pub fn aligned(columns: impl IntoIterator<Item = Side>, rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled).add_rows(rows);
    for (column, side) in table.column_iter_mut().zip(columns) {
        column.set_padding((0, 2));
        column.set_cell_alignment(match side {
            Side::Left => CellAlignment::Left,
            Side::Right => CellAlignment::Right,
        });
    }
    table.trim_fmt() + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell_and_lines_end_with_text() {
        let rows = [["name", "µs"], ["a–b", "1.5"], ["", "12.25"]].map(|row| row.map(String::from).to_vec());
        assert_eq!(aligned([Side::Left, Side::Right], rows), "name     µs\na–b     1.5\n      12.25\n");
    }
}
