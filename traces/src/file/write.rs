//! Writes workload files: a run's requests with their arrivals and exit depths, to be replayed.

use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};

use ::csv::Writer;
use polars::io::parquet::write::BatchedWriter;
use polars::prelude::*;

use engine::units::{Depth, Nanos};

use crate::error::TracesError;
use crate::file::parquet::ROW_GROUP_ROWS;
use crate::file::{ARRIVAL_S, COLUMNS, EXIT_DEPTHS, Format, OUTPUT_TOKENS, PROMPT_TOKENS};

/// One request as it ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedRequest<'a> {
    /// Prompt length.
    pub prompt_tokens: u32,
    /// Output length.
    pub output_tokens: u32,
    /// The intended arrival.
    pub arrival: Nanos,
    /// One per output token after the first.
    pub exit_depths: &'a [Depth],
}

/// Writes requests in order of arrival, in row groups, to a .csv or .parquet file with all four columns.
pub struct FileWriter {
    path: PathBuf,
    sink: Sink,
}

enum Sink {
    Csv(Box<Writer<File>>),
    Parquet(Box<BatchedWriter<BufWriter<File>>>, RowGroup),
}

impl FileWriter {
    /// Creates the file, or empties it.
    pub fn create(path: &Path) -> Result<Self, TracesError> {
        let format = Format::of(path)?;
        let file = File::create(path).map_err(|source| TracesError::Io { path: path.into(), source })?;
        let sink = match format {
            Format::Csv => {
                let mut writer = Writer::from_writer(file);
                writer.write_record(COLUMNS).map_err(|source| TracesError::Csv { path: path.into(), source })?;
                Sink::Csv(Box::new(writer))
            }
            Format::Parquet => {
                let schema = RowGroup::default().take().and_then(|empty| {
                    ParquetWriter::new(BufWriter::new(file))
                        .with_row_group_size(Some(ROW_GROUP_ROWS))
                        .batched(empty.schema())
                });
                let writer = schema.map_err(|source| TracesError::Parquet { path: path.into(), source })?;
                Sink::Parquet(Box::new(writer), RowGroup::default())
            }
        };
        Ok(Self { path: path.into(), sink })
    }

    /// Appends a request. Panics unless it has one exit depth per output token after the first.
    pub fn push(&mut self, request: &RecordedRequest<'_>) -> Result<(), TracesError> {
        assert_eq!(request.exit_depths.len() + 1, request.output_tokens as usize, "one depth per decoded token");
        match &mut self.sink {
            Sink::Csv(writer) => {
                let time_s = format!("{}.{:09}", request.arrival.0 / 1_000_000_000, request.arrival.0 % 1_000_000_000);
                let (prompt, output) = (request.prompt_tokens.to_string(), request.output_tokens.to_string());
                writer
                    .write_record([prompt, output, time_s, depths_text(request.exit_depths)])
                    .map_err(|source| TracesError::Csv { path: self.path.clone(), source })
            }
            Sink::Parquet(writer, group) => {
                group.push(request);
                if group.prompt_tokens.len() < ROW_GROUP_ROWS {
                    return Ok(());
                }
                group
                    .take()
                    .and_then(|group| writer.write_batch(&group))
                    .map_err(|source| TracesError::Parquet { path: self.path.clone(), source })
            }
        }
    }

    /// Writes what is left and closes the file.
    pub fn finish(self) -> Result<(), TracesError> {
        match self.sink {
            Sink::Csv(mut writer) => writer.flush().map_err(|source| TracesError::Io { path: self.path, source }),
            Sink::Parquet(mut writer, mut group) => {
                let written = group.take().and_then(|group| writer.write_batch(&group));
                written
                    .and_then(|()| writer.finish())
                    .map(|_| ())
                    .map_err(|source| TracesError::Parquet { path: self.path, source })
            }
        }
    }
}

/// Rows that wait to be written together.
#[derive(Default)]
struct RowGroup {
    prompt_tokens: Vec<u32>,
    output_tokens: Vec<u32>,
    arrival_s: Vec<f64>,
    exit_depths: Vec<String>,
}

impl RowGroup {
    fn push(&mut self, request: &RecordedRequest<'_>) {
        self.prompt_tokens.push(request.prompt_tokens);
        self.output_tokens.push(request.output_tokens);
        self.arrival_s.push(request.arrival.as_secs());
        self.exit_depths.push(depths_text(request.exit_depths));
    }

    /// The rows as a frame, leaving none.
    fn take(&mut self) -> PolarsResult<DataFrame> {
        let group = std::mem::take(self);
        DataFrame::new_infer_height(vec![
            Column::new(PROMPT_TOKENS.into(), group.prompt_tokens),
            Column::new(OUTPUT_TOKENS.into(), group.output_tokens),
            Column::new(ARRIVAL_S.into(), group.arrival_s),
            Column::new(EXIT_DEPTHS.into(), group.exit_depths),
        ])
    }
}

fn depths_text(depths: &[Depth]) -> String {
    let mut text = String::with_capacity(depths.len() * 2);
    for (index, depth) in depths.iter().enumerate() {
        if index > 0 {
            text.push(' ');
        }
        text.push_str(&depth.0.to_string());
    }
    text
}
