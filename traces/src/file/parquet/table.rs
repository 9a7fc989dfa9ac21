//! A Parquet file as slices of the columns that are wanted.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use polars::prelude::*;

use super::ROW_GROUP_ROWS;
use super::types::{self, Kind};
use crate::error::TracesError;

/// An open file.
pub(super) struct Table<'a> {
    path: &'a Path,
    /// Read once, though the file is opened for every slice.
    reader: ParquetReader<File>,
}

impl<'a> Table<'a> {
    pub(super) fn open(path: &'a Path) -> Result<Self, TracesError> {
        Ok(Self { path, reader: ParquetReader::new(open(path)?) })
    }

    /// The schema's names.
    pub(super) fn names(&mut self) -> Result<Vec<String>, TracesError> {
        Ok(self.schema()?.iter_names().map(ToString::to_string).collect())
    }

    /// An error unless the column, which is there, holds what is read from it.
    pub(super) fn check(&mut self, column: &str, kind: Kind) -> Result<(), TracesError> {
        let schema = self.schema()?;
        match schema.get(column) {
            Some(field) if !kind.reads(field.dtype()) => Err(TracesError::ColumnType {
                path: self.path.into(),
                column: column.into(),
                must: kind.must(),
                found: types::name(field.dtype()),
            }),
            _ => Ok(()),
        }
    }

    pub(super) fn rows(&mut self) -> Result<usize, TracesError> {
        self.reader.num_rows().map_err(at(self.path))
    }

    /// The wanted columns of rows from `first` on.
    pub(super) fn slice(&mut self, first: usize, columns: &[&str]) -> Result<DataFrame, TracesError> {
        let metadata = Arc::clone(self.reader.get_metadata().map_err(at(self.path))?);
        let columns = columns.iter().map(ToString::to_string).collect();
        let mut reader = ParquetReader::new(open(self.path)?)
            .with_columns(Some(columns))
            .with_slice(Some((first, ROW_GROUP_ROWS)))
            .read_parallel(ParallelStrategy::None);
        reader.set_metadata(metadata);
        reader.finish().map_err(at(self.path))
    }

    fn schema(&mut self) -> Result<Arc<ArrowSchema>, TracesError> {
        self.reader.schema().map_err(at(self.path))
    }
}

fn open(path: &Path) -> Result<File, TracesError> {
    File::open(path).map_err(|source| TracesError::Io { path: path.into(), source })
}

/// Names the file in an error of polars.
pub(super) fn at(path: &Path) -> impl Fn(PolarsError) -> TracesError {
    |source| TracesError::Parquet { path: path.into(), source }
}
