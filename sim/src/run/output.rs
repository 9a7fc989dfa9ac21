//! Where a run's steps and requests go: files that are written as the run goes, and a progress bar.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use engine::event_loop::{Refused, Step};
use engine::metrics::RequestRecord;
use engine::request::Arrival;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use reports::{ReportError, RequestsWriter, Results, StepsWriter, TIMELINE_STEPS, TimelineWriter};

use crate::run::serve::Sink;
use crate::scenario::OutputSettings;

/// The data files of one scenario, shared by its schedulers; under temporary names until [`Files::finish`].
pub struct Files {
    dir: PathBuf,
    requests: Option<RequestsWriter>,
    steps: Option<StepsWriter>,
    timeline: Option<TimelineWriter>,
}

impl Files {
    /// Opens the files that the scenario asks for.
    ///
    /// # Errors
    /// A file cannot be made.
    pub fn create(dir: &Path, settings: &OutputSettings) -> Result<Self, ReportError> {
        Ok(Self {
            dir: dir.into(),
            requests: settings.requests.then(|| RequestsWriter::create(&dir.join("requests.parquet"))).transpose()?,
            steps: settings.steps.then(|| StepsWriter::create(&dir.join("steps.parquet"))).transpose()?,
            timeline: settings
                .timeline
                .then(|| TimelineWriter::create(&dir.join("trace.json"), TIMELINE_STEPS))
                .transpose()?,
        })
    }

    /// The folder that they are in.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Completes the files under their names; the results of an earlier run in the folder go first, so that whoever comes in
    /// between finds the old or the new and never some of both.
    ///
    /// # Errors
    /// An old file cannot be removed, or a file cannot be written to its end.
    pub fn finish(self) -> Result<(), ReportError> {
        Results::Comparison.clear(&self.dir)?;
        self.requests.map(RequestsWriter::finish).transpose()?;
        self.steps.map(StepsWriter::finish).transpose()?;
        self.timeline.map(TimelineWriter::finish).transpose()?;
        Ok(())
    }
}

/// One scheduler's share of the files.
pub struct FileSink<'a> {
    files: &'a mut Files,
    scheduler: String,
    bar: ProgressBar,
    warned: bool,
}

impl<'a> FileSink<'a> {
    /// For the scheduler called `scheduler`, with a bar over `requests` requests.
    pub fn new(files: &'a mut Files, scheduler: &str, requests: u32) -> Self {
        let bar = bar(scheduler, requests.into(), "requests");
        Self { files, scheduler: scheduler.into(), bar, warned: false }
    }
}

impl Sink for FileSink<'_> {
    type Error = ReportError;

    fn step(&mut self, step: &Step) -> Result<(), ReportError> {
        if let Some(steps) = &mut self.files.steps {
            steps.push(&self.scheduler, step)?;
        }
        if let Some(timeline) = &mut self.files.timeline {
            timeline.push(&self.scheduler, step)?;
        }
        Ok(())
    }

    fn request(&mut self, record: &RequestRecord) -> Result<(), ReportError> {
        self.bar.inc(1);
        match &mut self.files.requests {
            Some(requests) => requests.push(&self.scheduler, record),
            None => Ok(()),
        }
    }

    fn refused(&mut self, arrival: &Arrival, refused: &Refused) -> Result<(), ReportError> {
        self.bar.inc(1);
        // The first says why; the report counts the rest.
        if !std::mem::replace(&mut self.warned, true) {
            self.bar.suspend(|| eprintln!("{}: request {} refused: {refused}", self.scheduler, arrival.request.id.0));
        }
        Ok(())
    }
}

impl Drop for FileSink<'_> {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// A bar over `length` of something on stderr, if someone watches.
pub(crate) fn bar(name: &str, length: u64, unit: &str) -> ProgressBar {
    let target = if std::io::stderr().is_terminal() {
        ProgressDrawTarget::stderr_with_hz(10)
    } else {
        ProgressDrawTarget::hidden()
    };
    let template = format!("{{msg:24}} {{wide_bar}} {{pos}}/{{len}} {unit} {{eta}}");
    let style = ProgressStyle::with_template(&template).expect("a valid template");
    ProgressBar::with_draw_target(Some(length), target).with_message(name.to_owned()).with_style(style)
}
