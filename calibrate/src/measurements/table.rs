//! A measurement as a row of a table: to CSV and back, and to Parquet. This crate's README describes the columns.

use std::io;
use std::path::Path;
use std::str::FromStr;

use csv::StringRecord;
use engine::architecture::Architecture;
use engine::scheduler::MAX_NUM_SEQS;
use engine::whole::Whole;
use reports::Timing;

use super::{Kind, Measurement, Point, Timed, Times};
use crate::error::CalibrateError;

/// Tokens of a launch at most, and KV entries of a row: far beyond any device, and their products within 64 bits.
const TOKENS_MAX: u32 = 1 << 30;

/// The columns that are written. Everything else in a table that is read has no meaning here.
pub(crate) const HEADER: &str = "stage,batch,context,loops,tokens,step_ms,round,calm,min_ms,max_ms";

/// Those without which there is no measurement.
const NEEDED: [&str; 4] = ["batch", "context", "loops", "step_ms"];

/// A table and what was not read of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// In the file's order.
    pub rows: Vec<Measurement>,
    /// Columns without a meaning here, for the reader to notice a misspelling.
    pub ignored: Vec<String>,
}

/// A whole table, with its setup in a comment.
pub fn table_text(setup: &str, rows: &[Measurement]) -> String {
    format!("# {setup}\n{HEADER}\n") + &rows.iter().map(to_csv).collect::<String>()
}

/// A row as CSV, with its line's end.
pub(crate) fn to_csv(row: &Measurement) -> String {
    let Timing { stage, batch, context, loops, tokens, round, calm, time_ms, min_ms, max_ms } = row.into();
    let [loops, tokens] = [loops, tokens].map(|count| if count == 0 { String::new() } else { count.to_string() });
    format!("{stage},{batch},{context},{loops},{tokens},{time_ms:.6},{round},{calm},{min_ms:.6},{max_ms:.6}\n")
}

/// A row of the Parquet file.
impl From<&Measurement> for Timing {
    fn from(&Measurement { point, round, times, .. }: &Measurement) -> Self {
        let Point { timed, context, tokens, batch, loops } = point;
        let Times { time_ms, min_ms, max_ms, undisturbed: calm } = times;
        Self { stage: timed.name(), batch, context, loops, tokens, round, calm, time_ms, min_ms, max_ms }
    }
}

/// Reads a file of measurements.
///
/// # Errors
/// A file that cannot be read, a missing column, or the first cell that is not what its column needs.
pub fn read(path: &Path) -> Result<Table, CalibrateError> {
    let file = std::fs::File::open(path).map_err(|source| CalibrateError::Read { path: path.into(), source })?;
    parse(file, &path.display().to_string())
}

/// Reads measurements; `file` names them in errors. Lines that start with `#` are comments.
///
/// # Errors
/// As [`read`].
pub fn parse(input: impl io::Read, file: &str) -> Result<Table, CalibrateError> {
    let broken = |source| CalibrateError::Csv { file: file.into(), source };
    let mut reader = csv::ReaderBuilder::new().comment(Some(b'#')).trim(csv::Trim::All).from_reader(input);
    let header = reader.headers().map_err(broken)?.clone();
    for column in NEEDED {
        if header.iter().all(|name| name != column) {
            let header = header.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
            return Err(CalibrateError::NoColumn { file: file.into(), column, header });
        }
    }
    let mut rows = Vec::new();
    for record in reader.records() {
        let record = record.map_err(broken)?;
        rows.push(Row { file, header: &header, record: &record }.measurement()?);
    }
    let unknown = |column: &&str| HEADER.split(',').all(|known| known != *column);
    let ignored = header.iter().filter(unknown).map(str::to_owned).collect();
    Ok(Table { rows, ignored })
}

/// A row that is being read.
#[derive(Clone, Copy)]
struct Row<'a> {
    file: &'a str,
    header: &'a StringRecord,
    record: &'a StringRecord,
}

impl<'a> Row<'a> {
    fn measurement(self) -> Result<Measurement, CalibrateError> {
        let timed = self.timed()?;
        let (prefill, host) = (timed == Timed::Prefill, timed.kind() == Kind::Host);
        // The host's work may take no time that a clock can show.
        let takes_time = |ms: f64| ms > 0.0 || (host && ms == 0.0);
        let time_ms = self.number("step_ms", takes_time, "must be a time in ms, greater than zero")?;
        let batch = self.count("batch", 1, MAX_NUM_SEQS)?;
        let tokens = if prefill { self.count("tokens", 1, TOKENS_MAX / batch)? } else { 0 };
        // The mean over an even number of timed tokens lies between two whole ones.
        let least = if prefill || host { 0.0 } else { 1.0 };
        let in_range = |context: f64| (least..=f64::from(TOKENS_MAX)).contains(&context);
        let range = format!("must be a number from {least} to {TOKENS_MAX}");
        let context = self.number("context", in_range, &range)?.round() as u32;
        let loops = if timed == Timed::Step { self.count("loops", 1, Architecture::LOOPS_MAX.into())? } else { 0 };
        let extreme = |column| match self.cell(column) {
            Some(_) => self.number(column, |ms| ms >= 0.0, "must be a time in ms"),
            None => Ok(time_ms),
        };
        let (min_ms, max_ms) = (extreme("min_ms")?, extreme("max_ms")?);
        let optional = |column, default| match self.cell(column) {
            Some(_) => self.count(column, 0, u32::MAX),
            None => Ok(default),
        };
        let (round, undisturbed) = (optional("round", 0)?, optional("calm", 1)?);
        let point = Point { timed, context, tokens, batch, loops };
        let times = Times { time_ms, min_ms, max_ms, undisturbed };
        Ok(Measurement { line: self.line(), point, round, times })
    }

    fn timed(self) -> Result<Timed, CalibrateError> {
        let name = self.text("stage");
        let named = Timed::ALL.into_iter().find(|timed| timed.name() == name);
        named.or_else(|| name.is_empty().then_some(Timed::Step)).ok_or_else(|| {
            let known = Timed::ALL.map(Timed::name).join(", ");
            self.wrong("stage", format!("must be one of {known}, or empty for step, got `{name}`"))
        })
    }

    fn count(self, column: &'static str, least: u32, most: u32) -> Result<u32, CalibrateError> {
        let text = self.text(column);
        let value = text.parse().ok().and_then(|Whole(count)| u32::try_from(count).ok());
        let value = value.filter(|count| (least..=most).contains(count));
        value.ok_or_else(|| self.wrong(column, format!("must be a whole number from {least} to {most}, got `{text}`")))
    }

    fn number(
        self,
        column: &'static str,
        allowed: impl Fn(f64) -> bool,
        expected: &str,
    ) -> Result<f64, CalibrateError> {
        let text = self.text(column);
        let value = f64::from_str(text).ok().filter(|&value| value.is_finite() && allowed(value));
        value.ok_or_else(|| self.wrong(column, format!("{expected}, got `{text}`")))
    }

    /// `None` where the table has no such column.
    fn cell(self, column: &str) -> Option<&'a str> {
        self.header.iter().position(|name| name == column).and_then(|place| self.record.get(place))
    }

    fn text(self, column: &str) -> &'a str {
        self.cell(column).unwrap_or("")
    }

    fn line(self) -> u64 {
        self.record.position().map_or(0, csv::Position::line)
    }

    fn wrong(self, column: &'static str, reason: String) -> CalibrateError {
        CalibrateError::Cell { file: self.file.into(), line: self.line(), column, reason }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_that_is_written_is_read_as_it_was() {
        let times = Times { time_ms: 1.25, min_ms: 1.0, max_ms: 2.5, undisturbed: 3 };
        let points = [Point::step(8, 64, 4), Point::prefill(2, 0, 32), Point::new(Timed::Read, 16, 0)];
        for point in points {
            let row = Measurement { line: 2, point, round: 7, times };
            let text = format!("{HEADER}\n{}", to_csv(&row));
            let table = parse(text.as_bytes(), "written").expect("a table");
            assert_eq!((table.rows, table.ignored), (vec![row], vec![]), "{text}");
        }
        assert_eq!(
            to_csv(&Measurement { line: 0, point: points[0], round: 7, times }),
            "step,8,64,4,,1.250000,7,3,1.000000,2.500000\n"
        );
    }
}
