//! Activations: one row a token.

/// Rows of f32. Rows behind the last, up to the tile height, are zeros that the GEMM may read.
#[derive(Clone, Debug)]
pub(super) struct Matrix {
    rows: usize,
    width: usize,
    data: Vec<f32>,
}

/// The GEMM's row counts: at most `ROWS_MAX` a call and never fewer than `ROWS_MIN`.
///
/// The gemm crate changes the order of summation for one or two rows, for products of at most 256 outputs, and, with
/// long rows, above 64 rows. Between 8 and 64 rows by 64 outputs it has one order, pinned by a test in `linear`.
pub(super) const ROWS_MIN: usize = 8;
/// See [`ROWS_MIN`].
pub(super) const ROWS_MAX: usize = 64;

impl Matrix {
    /// Zeros.
    pub(super) fn zeros(rows: usize, width: usize) -> Self {
        Self { rows, width, data: vec![0.0; padded(rows) * width] }
    }

    /// Rows given one by one.
    pub(super) fn from_rows<'a>(width: usize, rows: impl ExactSizeIterator<Item = &'a [f32]>) -> Self {
        let mut matrix = Self::zeros(rows.len(), width);
        for (to, from) in matrix.data.chunks_exact_mut(width).zip(rows) {
            to.copy_from_slice(from);
        }
        matrix
    }

    /// Tokens.
    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// Numbers a token.
    pub(super) fn width(&self) -> usize {
        self.width
    }

    /// One token's numbers.
    pub(super) fn row(&self, row: usize) -> &[f32] {
        assert!(row < self.rows, "row {row} of {}", self.rows);
        &self.data[row * self.width..][..self.width]
    }

    /// One token's numbers.
    pub(super) fn row_mut(&mut self, row: usize) -> &mut [f32] {
        assert!(row < self.rows, "row {row} of {}", self.rows);
        &mut self.data[row * self.width..][..self.width]
    }

    /// All rows in a row.
    pub(super) fn data(&self) -> &[f32] {
        &self.data[..self.rows * self.width]
    }

    /// All rows in a row.
    pub(super) fn data_mut(&mut self) -> &mut [f32] {
        &mut self.data[..self.rows * self.width]
    }

    /// Rows `first..` as the GEMM takes them: up to [`ROWS_MAX`], padding included.
    pub(super) fn tile(&self, first: usize) -> (&[f32], usize) {
        let rows = (padded(self.rows) - first).min(ROWS_MAX);
        (&self.data[first * self.width..][..rows * self.width], rows)
    }
}

/// Rows with the last tile filled up to [`ROWS_MIN`].
pub(super) fn padded(rows: usize) -> usize {
    match rows % ROWS_MAX {
        0 => rows,
        rest => rows - rest + rest.max(ROWS_MIN),
    }
}
