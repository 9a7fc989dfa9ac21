//! Writes workload files: a run's requests with their arrivals and exit depths, to be replayed.

use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::csv::Writer;
use polars::io::parquet::write::BatchedWriter;
use polars::prelude::*;

use engine::content::Piece;
use engine::units::{Depth, Nanos};
use files::PendingFile;

use crate::error::TracesError;
use crate::file::parquet::ROW_GROUP_ROWS;
use crate::file::{ARRIVAL_S, CANCEL_AFTER_S, EXIT_DEPTHS, Format, OUTPUT_TOKENS, PIECES, PROMPT_TOKENS};
use crate::pieces;

/// One request as it ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedRequest<'a> {
    /// Prompt length.
    pub prompt_tokens: u32,
    /// Output length.
    pub output_tokens: u32,
    /// The intended arrival; not looked at in a file without arrivals.
    pub arrival: Nanos,
    /// How long after its arrival its client gives up; not looked at in a file without cancellations.
    pub cancel_after: Option<Nanos>,
    /// What its prompt begins with; not looked at in a file without pieces.
    pub pieces: &'a [Piece],
    /// One per output token after the first; not looked at in a file without exits.
    pub exit_depths: &'a [Depth],
}

/// Which columns a file has beside the lengths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contents {
    /// `arrival_s`.
    pub arrivals: bool,
    /// `cancel_after_s`.
    pub cancels: bool,
    /// `pieces`.
    pub pieces: bool,
    /// `exit_depths`.
    pub exits: bool,
}

impl Contents {
    /// All columns.
    pub const ALL: Self = Self { arrivals: true, cancels: true, pieces: true, exits: true };

    fn columns(self) -> impl Iterator<Item = &'static str> {
        let optional = [
            (self.arrivals, ARRIVAL_S),
            (self.cancels, CANCEL_AFTER_S),
            (self.pieces, PIECES),
            (self.exits, EXIT_DEPTHS),
        ];
        let present = optional.into_iter().filter_map(|(present, column)| present.then_some(column));
        [PROMPT_TOKENS, OUTPUT_TOKENS].into_iter().chain(present)
    }
}

/// Writes requests in order of arrival, in row groups, to a .csv or .parquet file, which appears under its name only
/// when it is finished.
pub struct FileWriter {
    path: PathBuf,
    contents: Contents,
    pending: PendingFile,
    sink: Sink,
}

enum Sink {
    Csv(Box<Writer<Arc<File>>>),
    Parquet(Box<BatchedWriter<BufWriter<Arc<File>>>>, RowGroup),
}

impl FileWriter {
    /// Begins a file with these columns; one that has the name already stays until [`Self::finish`].
    pub fn create(path: &Path, contents: Contents) -> Result<Self, TracesError> {
        let format = Format::of(path)?;
        let pending = PendingFile::create(path).map_err(|source| TracesError::Io { path: path.into(), source })?;
        let sink = match format {
            Format::Csv => {
                let mut writer = Writer::from_writer(pending.handle());
                writer
                    .write_record(contents.columns())
                    .map_err(|source| TracesError::Csv { path: path.into(), source })?;
                Sink::Csv(Box::new(writer))
            }
            Format::Parquet => {
                let schema = RowGroup::default().take(contents).and_then(|empty| {
                    ParquetWriter::new(BufWriter::new(pending.handle()))
                        .with_row_group_size(Some(ROW_GROUP_ROWS))
                        .batched(empty.schema())
                });
                let writer = schema.map_err(|source| TracesError::Parquet { path: path.into(), source })?;
                Sink::Parquet(Box::new(writer), RowGroup::default())
            }
        };
        Ok(Self { path: path.into(), contents, pending, sink })
    }

    /// Appends a request. Panics unless it has one exit depth per output token after the first, if exits are written.
    pub fn push(&mut self, request: &RecordedRequest<'_>) -> Result<(), TracesError> {
        let Contents { arrivals, cancels, pieces, exits } = self.contents;
        if exits {
            let decoded = request.output_tokens as usize - 1;
            assert_eq!(request.exit_depths.len(), decoded, "one depth per decoded token");
        }
        match &mut self.sink {
            Sink::Csv(writer) => {
                let seconds = |time: Nanos| format!("{}.{:09}", time.0 / 1_000_000_000, time.0 % 1_000_000_000);
                let fields = [
                    Some(request.prompt_tokens.to_string()),
                    Some(request.output_tokens.to_string()),
                    arrivals.then(|| seconds(request.arrival)),
                    cancels.then(|| request.cancel_after.map_or_else(String::new, seconds)),
                    pieces.then(|| pieces::to_text(request.pieces)),
                    exits.then(|| depths_text(request.exit_depths)),
                ];
                writer
                    .write_record(fields.iter().flatten())
                    .map_err(|source| TracesError::Csv { path: self.path.clone(), source })
            }
            Sink::Parquet(writer, group) => {
                group.push(request, self.contents);
                if group.prompt_tokens.len() < ROW_GROUP_ROWS {
                    return Ok(());
                }
                group
                    .take(self.contents)
                    .and_then(|group| writer.write_batch(&group))
                    .map_err(|source| TracesError::Parquet { path: self.path.clone(), source })
            }
        }
    }

    /// Writes what is left and gives the file its name.
    pub fn finish(self) -> Result<(), TracesError> {
        match self.sink {
            Sink::Csv(mut writer) => {
                writer.flush().map_err(|source| TracesError::Io { path: self.path.clone(), source })?;
            }
            Sink::Parquet(mut writer, mut group) => {
                let written = group.take(self.contents).and_then(|group| writer.write_batch(&group));
                written
                    .and_then(|()| writer.finish())
                    .map_err(|source| TracesError::Parquet { path: self.path.clone(), source })?;
            }
        }
        self.pending.finish().map_err(|source| TracesError::Io { path: self.path, source })?;
        Ok(())
    }
}

/// Rows that wait to be written together.
#[derive(Default)]
struct RowGroup {
    prompt_tokens: Vec<u32>,
    output_tokens: Vec<u32>,
    arrival_s: Vec<f64>,
    cancel_after_s: Vec<Option<f64>>,
    pieces: Vec<String>,
    exit_depths: Vec<String>,
}

impl RowGroup {
    fn push(&mut self, request: &RecordedRequest<'_>, contents: Contents) {
        self.prompt_tokens.push(request.prompt_tokens);
        self.output_tokens.push(request.output_tokens);
        if contents.arrivals {
            self.arrival_s.push(request.arrival.as_secs());
        }
        if contents.cancels {
            self.cancel_after_s.push(request.cancel_after.map(Nanos::as_secs));
        }
        if contents.pieces {
            self.pieces.push(pieces::to_text(request.pieces));
        }
        if contents.exits {
            self.exit_depths.push(depths_text(request.exit_depths));
        }
    }

    /// The rows as a frame, leaving none.
    fn take(&mut self, contents: Contents) -> PolarsResult<DataFrame> {
        let group = std::mem::take(self);
        let columns = [
            Some(Column::new(PROMPT_TOKENS.into(), group.prompt_tokens)),
            Some(Column::new(OUTPUT_TOKENS.into(), group.output_tokens)),
            contents.arrivals.then(|| Column::new(ARRIVAL_S.into(), group.arrival_s)),
            contents.cancels.then(|| Column::new(CANCEL_AFTER_S.into(), group.cancel_after_s)),
            contents.pieces.then(|| Column::new(PIECES.into(), group.pieces)),
            contents.exits.then(|| Column::new(EXIT_DEPTHS.into(), group.exit_depths)),
        ];
        DataFrame::new_infer_height(columns.into_iter().flatten().collect())
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
