//! `sweep.csv` and `sweep.parquet`: a row per point and scheduler, a column per swept field and figure.

use std::path::{Path, PathBuf};

use engine::interval::Interval;
use polars::prelude::{Column, DataFrame, NamedFrom, ParquetWriter, PlSmallStr, Series};

use super::{Scalar, Sweep};
use crate::error::{ReportError, Result};
use crate::file::{create, finish, write_whole};
use crate::measures::Measures;

/// A column's values; text and numbers keep their kinds in Parquet.
enum Values {
    Counts(Vec<u64>),
    Numbers(Vec<Option<f64>>),
    Texts(Vec<Option<String>>),
}

pub(super) fn write_csv(sweep: &Sweep, path: &Path) -> Result<PathBuf> {
    let columns = columns(sweep);
    let csv_error = |source| ReportError::Csv { path: path.to_owned(), source };
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(columns.iter().map(|(name, _)| name)).map_err(csv_error)?;
    for row in 0..sweep.rows.len() {
        writer.write_record(columns.iter().map(|(_, values)| values.text(row))).map_err(csv_error)?;
    }
    let bytes = writer.into_inner().expect("a vector takes every byte");
    write_whole(path, &bytes)
}

pub(super) fn write_parquet(sweep: &Sweep, path: &Path) -> Result<PathBuf> {
    let named = |source| ReportError::Parquet { path: path.to_owned(), source };
    let columns = columns(sweep).into_iter().map(|(name, values)| values.into_column(&name)).collect();
    let mut table = DataFrame::new_infer_height(columns).map_err(named)?;
    let file = create(path)?;
    ParquetWriter::new(file.handle()).set_parallel(false).finish(&mut table).map_err(named)?;
    finish(file)
}

/// The table by columns: point, swept fields, scheduler, seeds, figures, and half-widths if anything was repeated.
fn columns(sweep: &Sweep) -> Vec<(String, Values)> {
    let rows = &sweep.rows;
    let mut columns = vec![("point".into(), Values::Counts(rows.iter().map(|row| row.point as u64).collect()))];
    for (index, field) in sweep.fields.iter().enumerate() {
        columns.push((field.clone(), Values::of(rows.iter().map(|row| &row.values[index]))));
    }
    let names = rows.iter().map(|row| Some(row.scheduler.clone()));
    columns.push(("scheduler".into(), Values::Texts(names.collect())));
    columns.push(("seeds".into(), Values::Counts(rows.iter().map(|row| row.repeats.len() as u64).collect())));
    let intervals: Vec<_> = rows.iter().map(|row| Measures::intervals(&row.repeats)).collect();
    let figure = |index: usize, pick: fn(Interval) -> Option<f64>| {
        Values::Numbers(intervals.iter().map(|figures| figures[index].and_then(pick)).collect())
    };
    let measures = || Measures::ALL.iter().enumerate();
    columns.extend(measures().map(|(index, m)| (m.column.to_owned(), figure(index, |interval| Some(interval.mean)))));
    if rows.iter().any(|row| row.repeats.len() > 1) {
        let half = measures().map(|(index, m)| (format!("{}_half_width", m.column), figure(index, |i| i.half_width)));
        columns.extend(half);
    }
    columns
}

impl Values {
    /// A swept field's values: numbers if all are.
    fn of<'a>(values: impl Iterator<Item = &'a Scalar> + Clone) -> Self {
        if values.clone().all(|value| matches!(value, Scalar::Number(_) | Scalar::Null)) {
            return Self::Numbers(values.map(Scalar::number).collect());
        }
        let text = |value: &Scalar| if *value == Scalar::Null { None } else { Some(value.to_string()) };
        Self::Texts(values.map(text).collect())
    }

    fn text(&self, row: usize) -> String {
        match self {
            Self::Counts(counts) => counts[row].to_string(),
            Self::Numbers(numbers) => numbers[row].map_or_else(String::new, |number| number.to_string()),
            Self::Texts(texts) => texts[row].clone().unwrap_or_default(),
        }
    }

    fn into_column(self, name: &str) -> Column {
        let name = PlSmallStr::from_str(name);
        let series = match self {
            Self::Counts(counts) => Series::new(name, counts),
            Self::Numbers(numbers) => Series::new(name, numbers),
            Self::Texts(texts) => Series::new(name, texts),
        };
        series.into()
    }
}
