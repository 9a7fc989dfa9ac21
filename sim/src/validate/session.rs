//! Measures what the journal does not have yet, in the protocol's order, as far as the budget reaches.

use std::collections::BTreeSet;
use std::path::Path;

use engine::executor::Clock;
use engine::live::wall_clock::WallClock;

use super::jobs::{Job, jobs};
use super::journal::{Journal, Known, LiveRun};
use super::predict::Predicted;
use super::runs::PlannedRun;
use crate::json_lines::JournalError;
use crate::live::{Engine, LiveDevice, LiveError, Logged, Served};
use crate::run::facts::REVISION;
use crate::run::key::FileHashes;

/// Why measuring broke off; what was measured until then is in the journal.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what the fields are")]
pub enum MeasureError {
    /// The device cannot run it.
    #[error("run `{run}`, {scheduler}: {source}")]
    Live { run: String, scheduler: String, source: Box<LiveError> },
    /// The journal cannot be used.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

/// What there is to measure, and what has been.
pub struct Session<'a> {
    pub(super) runs: &'a [PlannedRun],
    pub(super) predicted: &'a Predicted,
    device: LiveDevice,
    hashes: FileHashes,
    pub(super) known: Known,
}

/// How far measuring came.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// Live runs made now.
    pub made: usize,
    /// Live runs that the journal had.
    pub known: usize,
    /// Live runs that the budget left no time for.
    pub left: usize,
}

impl<'a> Session<'a> {
    /// On what a folder's journal has.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub fn new(
        runs: &'a [PlannedRun],
        predicted: &'a Predicted,
        device: LiveDevice,
        dir: &Path,
    ) -> Result<Self, JournalError> {
        Ok(Self { runs, predicted, device, hashes: FileHashes::default(), known: Known::read(dir)? })
    }

    /// The measurement of a job, if there is one.
    pub(super) fn measured(&self, job: Job) -> Option<&LiveRun> {
        self.known.get(&self.key(job))
    }

    /// Live runs in the journal that the protocol does not ask for: of other settings, or of an older program.
    pub fn passed_over(&self) -> usize {
        let asked: BTreeSet<String> = self.jobs().into_iter().map(|job| self.key(job)).collect();
        self.known.keys().filter(|key| !asked.contains(*key)).count()
    }

    /// Measures what is missing, one line of progress each on stderr. A finished run is on disk before the next one begins;
    /// none begins that would end beyond `budget_s` seconds on `clock`.
    ///
    /// # Errors
    /// See [`MeasureError`].
    pub fn complete(
        &mut self,
        engine: &mut Engine,
        dir: &Path,
        (clock, budget_s): (&WallClock, Option<f64>),
    ) -> Result<Progress, MeasureError> {
        let jobs = self.jobs();
        let missing: Vec<Job> = jobs.iter().copied().filter(|job| self.measured(*job).is_none()).collect();
        let known = jobs.len() - missing.len();
        // The longest time that loading, recording and the like have taken beside a run's own.
        let mut besides_s = 0.0_f64;
        let mut journal = None;
        for (made, &job) in missing.iter().enumerate() {
            let predicted_s = self.predicted.seconds(job.run, job.part, job.scheduler);
            if budget_s.is_some_and(|budget_s| clock.now().as_secs() + besides_s + predicted_s > budget_s) {
                return Ok(Progress { made, known, left: missing.len() - made });
            }
            let started_s = clock.now().as_secs();
            let journal = match &mut journal {
                Some(journal) => journal,
                None => {
                    // A device that is not there leaves no folder behind.
                    engine.prepare(&job.plan(self.runs).scenario).map_err(|source| self.blame(job, source))?;
                    journal.insert(Journal::open(dir)?)
                }
            };
            let mut entry = self.measure(engine, job)?;
            entry.wall_s = clock.now().as_secs() - started_s;
            besides_s = besides_s.max(entry.wall_s - entry.seconds());
            journal.append(&entry)?;
            eprintln!("{}", self.line(job, &entry, (known + made + 1, jobs.len())));
            self.known.insert(entry);
        }
        Ok(Progress { made: missing.len(), known, left: 0 })
    }

    /// Live runs in the order in which they are made; what runs have in common, such as a baseline, is measured once.
    pub(super) fn jobs(&self) -> Vec<Job> {
        let mut keys = BTreeSet::new();
        jobs(self.runs).into_iter().filter(|job| keys.insert(self.key(*job))).collect()
    }

    fn measure(&self, engine: &mut Engine, job: Job) -> Result<LiveRun, MeasureError> {
        let run = &self.runs[job.run];
        let (plan, planned) = (job.plan(self.runs), job.planned(self.runs));
        let mut sink = Logged::new(None);
        let ran = engine.run(plan, planned, &mut sink).map_err(|source| self.blame(job, source))?;
        let mut served = Served { metrics: ran.recorder.metrics(), log: sink.into_log() };
        let carried = plan.slo().map(|slo| slo.carried(&served.metrics));
        // What no comparison reads would be most of the file: the queues over time, and where time decides what is in a
        // batch, the single steps.
        served.metrics.series.clear();
        if !plan.untimed() {
            served.log.steps.clear();
        }
        Ok(LiveRun {
            key: self.key(job),
            run: run.entry.name.clone(),
            scheduler: planned.name.clone(),
            repeat: job.repeat,
            revision: REVISION.into(),
            device: engine.describe(plan),
            exits: ran.exit_label.into(),
            wall_s: 0.0,
            carried,
            served,
        })
    }

    fn blame(&self, job: Job, source: LiveError) -> MeasureError {
        MeasureError::Live {
            run: self.runs[job.run].entry.name.clone(),
            scheduler: job.planned(self.runs).name.clone(),
            source: Box::new(source),
        }
    }

    fn key(&self, job: Job) -> String {
        job.key(self.runs, self.device, &self.hashes)
    }

    fn line(&self, job: Job, entry: &LiveRun, (number, of): (usize, usize)) -> String {
        let (model, live) = (&self.predicted.part(job.run, job.part)[job.scheduler].metrics, &entry.served.metrics);
        let pair = |name: &str, unit: &str, predicted: f64, measured: f64| {
            let off = 100.0 * (predicted / measured - 1.0);
            format!("{name} {predicted:.3} predicted, {measured:.3} {unit} measured ({off:+.1}%)")
        };
        // A run without output has no throughput, and one with a token a request no TPOT.
        let pairs = [
            ("throughput", "tokens/s", model.throughput_tokens_per_s, live.throughput_tokens_per_s),
            ("TPOT", "ms", 1e3 * model.tpot.mean, 1e3 * live.tpot.mean),
        ];
        let measured = pairs.into_iter().filter(|(.., measured)| *measured > 0.0);
        let measured: String = measured.map(|(name, unit, p, m)| pair(name, unit, p, m) + "; ").collect();
        format!(
            "{number}/{of} {}, {}, {} of {}: {measured}{:.1} s",
            entry.run,
            entry.scheduler,
            entry.repeat + 1,
            self.runs[job.run].entry.repeats.0,
            entry.wall_s
        )
    }
}
