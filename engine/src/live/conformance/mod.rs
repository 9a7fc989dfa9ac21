//! A suite that every live executor must pass: scripted batches, without a scheduler, whose tokens and logits are known.
//!
//! Every case is compared with an oracle within a stated error. Cases that differ only in what cannot matter (packing,
//! chunking where the layout allows it, block order, mixed depths, offloading) must also agree bit for bit among
//! themselves. What they say of a token's probability must be what its logits say. The CPU executor's oracle is a dense
//! reference; the CUDA executor's is the CPU executor.

mod cases;
mod compare;
mod scores;
mod script;
mod signals;

pub use cases::{Case, Group, groups};
pub use compare::{Comparison, Mismatch, compare};
pub use scores::PromptScores;
pub use script::Script;
pub use signals::{Heard, SignalError, Signals, hear, run_signals};

use crate::architecture::Architecture;
use crate::batch::{Batch, Emits, Outcome, Stage};
use crate::executor::{Executor, VirtualClock};
use crate::live::{Backend, Live, LiveConfig, LiveError, Transcripts};
use crate::scheduler::Overlap;

/// What came out of the suite.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// One line a case, in order.
    pub cases: Vec<CaseReport>,
}

/// One case's comparison with the oracle.
#[derive(Clone, Debug)]
pub struct CaseReport {
    /// The group's name, then the case's.
    pub name: String,
    /// Against the oracle.
    pub comparison: Comparison,
}

/// Why an executor does not conform.
#[derive(Debug, thiserror::Error)]
pub enum Failure<E: std::error::Error + 'static> {
    /// It could not run a case.
    #[error("{case}: {source}")]
    Execution {
        /// The case.
        case: String,
        /// What the executor said.
        source: E,
    },
    /// It told the scheduler something else than the exits and the script say.
    #[error("{case}: batch {batch}, row {row}: {what}")]
    Outcome {
        /// The case.
        case: String,
        /// The batch's id.
        batch: u64,
        /// The row's index.
        row: usize,
        /// What it told, and what it must tell.
        what: String,
    },
    /// It disagrees with the oracle.
    #[error("{case}: {mismatch}")]
    Oracle {
        /// The case.
        case: String,
        /// Where.
        mismatch: Mismatch,
    },
    /// It disagrees with itself.
    #[error("{case}: must equal the group's first case bit for bit, but {mismatch}")]
    Invariance {
        /// The case.
        case: String,
        /// Where.
        mismatch: Mismatch,
    },
}

impl Report {
    /// The largest error of all cases.
    pub fn max_error(&self) -> f64 {
        self.cases.iter().map(|case| case.comparison.max_error).fold(0.0, f64::max)
    }
}

/// Runs every case of a model on fresh executors from `make` and compares them with `oracle`'s transcripts, whose logits
/// may differ by at most `tolerance` (root mean square, relative to the expected logits').
///
/// # Errors
/// The first case that fails.
pub fn run<B: Backend>(
    architecture: &Architecture,
    mut make: impl FnMut(LiveConfig) -> Result<Live<B>, LiveError<B::Error>>,
    mut oracle: impl FnMut(&Group, &Case) -> Transcripts,
    tolerance: f64,
) -> Result<Report, Failure<LiveError<B::Error>>> {
    let mut report = Report::default();
    for group in groups(architecture) {
        let mut first: Option<(Transcripts, PromptScores)> = None;
        for case in &group.cases {
            let name = format!("{}, {}", group.name, case.name);
            let failed = |source| Failure::Execution { case: name.clone(), source };
            let mut executor = make(case.config(&group)).map_err(failed)?;
            let scores = play(&mut executor, &group, case)?;
            let got = executor.transcripts();
            let comparison = compare(&oracle(&group, case), got, tolerance)
                .map_err(|mismatch| Failure::Oracle { case: name.clone(), mismatch })?;
            match &first {
                Some((first, first_scores)) if case.equals_first => {
                    let same_tokens = compare(first, got, 0.0).map(|_| ());
                    same_tokens
                        .and_then(|()| first_scores.equals(&scores))
                        .map_err(|mismatch| Failure::Invariance { case: name.clone(), mismatch })?;
                }
                Some(_) => {}
                None => first = Some((got.clone(), scores)),
            }
            report.cases.push(CaseReport { name, comparison });
        }
    }
    Ok(report)
}

/// Runs a case on a fresh executor and checks what the outcomes say of exits and probabilities; gives those of the prompts.
/// Another executor that ran the case so can be the oracle.
///
/// # Errors
/// The executor's first error, or the first outcome that says something else than the group's exits or the kept logits.
pub fn play<B: Backend>(
    executor: &mut Live<B>,
    group: &Group,
    case: &Case,
) -> Result<PromptScores, Failure<LiveError<B::Error>>> {
    let name = format!("{}, {}", group.name, case.name);
    let failed = |source| Failure::Execution { case: name.clone(), source };
    let mut clock = VirtualClock::default();
    for submission in &case.submissions {
        executor.submit(submission).unwrap_or_else(|reject| panic!("{name}: {reject}"));
    }
    // Under lookahead batches queue up; then the suite queues them all.
    let depth = if case.overlap == Overlap::Lookahead { case.batches.len() } else { 1 };
    let mut scores = PromptScores::default();
    for queued in case.batches.chunks(depth) {
        for batch in queued {
            executor.launch(batch.clone(), &mut clock).map_err(failed)?;
        }
        for batch in queued {
            let outcome = executor.wait(&mut clock).map_err(failed)?;
            let checked = check_outcome(&outcome, batch, group, case);
            let checked = checked.and_then(|()| scores.take(&outcome, executor.transcripts()));
            checked.map_err(|(row, what)| Failure::Outcome { case: name.clone(), batch: batch.id, row, what })?;
        }
    }
    scores.check_whole(case).map_err(|mismatch| Failure::Oracle { case: name.clone(), mismatch })?;
    Ok(scores)
}

/// The row that says something else than it must, and what.
fn check_outcome(outcome: &Outcome, batch: &Batch, group: &Group, case: &Case) -> Result<(), (usize, String)> {
    assert_eq!(outcome.batch, *batch, "batches come back in order, unchanged");
    assert_eq!(outcome.rows.len(), batch.rows.len(), "one outcome a row");
    let emitted: u32 = batch.rows.iter().map(|row| row.emitted()).sum();
    assert_eq!(outcome.tokens.len(), emitted as usize, "one id a token");
    for (i, (row, told)) in batch.rows.iter().zip(&outcome.rows).enumerate() {
        let exits = (0..row.span.count).map(|index| group.exit(row.request, row.token + index));
        let last = exits.max().filter(|_| batch.stage == Stage::Core);
        let expected = last.and_then(|exit| case.overlap.reveals(exit, row.depth));
        if told.leaves_after != expected {
            return Err((i, format!("leaves after {:?}, expected {expected:?}", told.leaves_after)));
        }
        // Scripts check tokens that were made before, so that all of them are right.
        let accepted = if row.emits == Emits::All { row.span.count - 1 } else { 0 };
        if told.accepted != accepted {
            return Err((i, format!("{} inputs accepted, expected {accepted}", told.accepted)));
        }
    }
    Ok(())
}
