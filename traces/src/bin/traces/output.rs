//! What every command prints and how.

use std::io::{self, Write};
use std::path::Path;

use files::check_outputs;
use miette::{Report, miette};
use traces::file::Rows;
use traces::statistics::Statistics;

/// Prints to stdout; a reader that has seen enough is no error.
pub(crate) fn print(text: &str) -> Result<(), Report> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(miette!("stdout: {error}")),
        _ => Ok(()),
    }
}

/// An error of the library, shown as it is.
pub(crate) fn show(error: traces::TracesError) -> Report {
    miette!("{error}")
}

/// A rate, with a power of ten where three decimals would show nothing of it.
pub(crate) fn rate(per_s: f64) -> String {
    if per_s < 0.0005 { format!("{per_s:.3e}") } else { format!("{per_s:.3}") }
}

/// Fails before anything is written if an output is a file that is read, or two are one.
pub(crate) fn keep_inputs<I, O>(inputs: I, outputs: O) -> Result<(), Report>
where
    I: IntoIterator<Item: AsRef<Path>>,
    O: IntoIterator<Item: AsRef<Path>>,
{
    check_outputs(inputs, outputs).map_err(|clash| miette!("{clash}"))
}

/// What was written, in a line or two.
pub(crate) fn written(rows: &Rows, path: &Path) -> String {
    let statistics = Statistics::of(rows);
    let mut text = format!(
        "written to {}: {} requests, mean prompt {:.1} and output {:.1} tokens",
        path.display(),
        grouped(rows.len() as u64),
        statistics.prompt.mean(),
        statistics.output.mean()
    );
    if let Some(per_s) = statistics.arrivals.and_then(|arrivals| arrivals.rate_per_s) {
        text += &format!(", {} per second", rate(per_s));
    }
    if let Some(exits) = statistics.exits {
        text += &format!(", mean exit depth {:.3}", exits.mean);
    }
    text + "\n"
}

/// A number with commas: 12,345.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn numbers_are_grouped_by_threes() {
        let check = |number, expect| assert_eq!(super::grouped(number), expect);
        check(0, "0");
        check(999, "999");
        check(1000, "1,000");
        check(1_234_567, "1,234,567");
    }
}
