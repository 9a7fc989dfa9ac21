//! A folder holds the results of one run: what an earlier run left there goes before anything of another appears.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::error::{Result, at};

/// What fills a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Results {
    /// Schedulers on one workload, with the files of live runs.
    Comparison,
    /// The table of a sweep.
    Sweep,
    /// The report of a protocol.
    Protocol,
    /// A study, by its name.
    Study(&'static str),
}

impl Results {
    /// All that may share a folder.
    const SHARING: [Self; 3] = [Self::Comparison, Self::Sweep, Self::Protocol];

    /// What such a run may write, its journal and the exits that it recorded left out: they are what later runs go on from. Its
    /// sign comes last, so that a removal that was cut off is gone on with.
    fn names(self) -> Vec<String> {
        let (files, plots): (&[&str], &[&str]) = match self {
            Self::Comparison => (
                &[
                    "scenario.yaml",
                    "report.html",
                    "requests.parquet",
                    "steps.parquet",
                    "trace.json",
                    "validation.json",
                    "client.json",
                    "summary.json",
                ],
                &["throughput", "latency_cdf", "core_batch", "exit_depths", "queues_and_kv", "step_times"],
            ),
            Self::Sweep => (&["sweep.csv", "sweep.parquet", "scenario.yaml", "report.html"], &["sweep"]),
            Self::Protocol => (
                &["validation.json", "validation.csv", "report.html", "requests.parquet", "steps.parquet"],
                &["offline_speedup", "latency_over_rate"],
            ),
            Self::Study(_) => (&["summary.json", "scenario.yaml"], &["latency_over_rate", "explore"]),
        };
        let table = if let Self::Study(name) = self { Some(format!("{name}.csv")) } else { None };
        let plots = plots.iter().flat_map(|stem| [format!("{stem}.svg"), format!("{stem}.png")]);
        plots.chain(table).chain(files.iter().map(ToString::to_string)).collect()
    }

    /// What only such a run leaves. Without it, files of these names are somebody else's.
    fn sign(self) -> Option<&'static str> {
        match self {
            Self::Comparison => Some("summary.json"),
            Self::Sweep => Some("points"),
            Self::Protocol => Some("live.jsonl"),
            Self::Study(_) => None,
        }
    }

    /// Every file that this run may write into the folder, or take away from it.
    pub fn files(self, folder: &Path) -> BTreeSet<PathBuf> {
        let others = Self::SHARING.into_iter().filter(|_| !matches!(self, Self::Study(_)));
        others.chain([self]).flat_map(Self::names).map(|name| folder.join(name)).collect()
    }

    /// Takes away what an earlier run left; the files of other kinds of runs only where such a run has been. All other files,
    /// journals and recorded exits stay.
    ///
    /// # Errors
    /// A file cannot be removed.
    pub fn clear(self, folder: &Path) -> Result<()> {
        let been = |other: &Self| other.sign().is_some_and(|sign| folder.join(sign).exists());
        let others: Vec<Self> =
            Self::SHARING.into_iter().filter(|_| !matches!(self, Self::Study(_))).filter(been).collect();
        for name in others.into_iter().chain([self]).flat_map(Self::names) {
            let path = folder.join(name);
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(at(&path)(error)),
                _ => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type TestResult = std::result::Result<(), Box<dyn std::error::Error>>;

    fn check(results: Results, there: &[&str], stay: &[&str]) -> TestResult {
        let folder = tempfile::tempdir()?;
        for name in there {
            fs::write(folder.path().join(name), "old")?;
        }
        results.clear(folder.path())?;
        let mut left = BTreeSet::new();
        for entry in fs::read_dir(folder.path())? {
            left.insert(entry?.file_name().into_string().map_err(|_| "a name")?);
        }
        assert_eq!(left.iter().map(String::as_str).collect::<Vec<_>>(), stay, "{results:?}");
        Ok(())
    }

    #[test]
    fn the_old_goes_and_what_is_not_ours_stays() -> TestResult {
        let report = ["notes.txt", "recorded_refill_K_1.csv", "report.html", "summary.json", "throughput.png"];
        check(Results::Comparison, &report, &["notes.txt", "recorded_refill_K_1.csv"])?;
        check(Results::Sweep, &report, &["notes.txt", "recorded_refill_K_1.csv"])?;
        check(Results::Comparison, &["points", "sweep.csv", "sweep.svg"], &["points"])?;
        check(Results::Comparison, &["live.jsonl", "validation.csv"], &["live.jsonl"])?;
        check(Results::Protocol, &["live.jsonl", "requests.parquet", "validation.csv"], &["live.jsonl"])?;
        check(Results::Study("tune"), &["summary.json", "tune.csv", "validation.csv"], &["validation.csv"])
    }

    #[test]
    fn files_of_another_kind_stay_where_no_such_run_has_been() -> TestResult {
        check(Results::Comparison, &["sweep.csv", "validation.csv"], &["sweep.csv", "validation.csv"])?;
        check(Results::Sweep, &["requests.parquet", "sweep.csv"], &["requests.parquet"])
    }
}
