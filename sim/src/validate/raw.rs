//! The raw times behind a report, on both sides, as Parquet files.

use std::collections::BTreeMap;
use std::path::Path;

use engine::metrics::RequestRecord;
use engine::request::RequestId;
use reports::{LiveRun, LiveStep, ReportError, write_live_requests, write_live_steps};

use super::jobs::Job;
use super::session::Session;
use crate::live::{Served, step_times};

impl Session<'_> {
    /// Writes `requests.parquet` and `steps.parquet`: every live run once, however many runs of the protocol share it.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn write_raw(&self, dir: &Path) -> Result<(), ReportError> {
        let jobs = self.jobs();
        let measured = || jobs.iter().filter_map(|&job| Some((job, self.name(job), &self.measured(job)?.served)));
        let requests = measured().flat_map(|(job, name, live)| {
            let predicted = by_request(self.predicted_of(job));
            let measured = live.log.requests.iter();
            measured.filter_map(move |record| Some((name, record, *predicted.get(&record.request)?)))
        });
        write_live_requests(&dir.join("requests.parquet"), requests)?;
        let steps = measured().flat_map(|(job, name, live)| {
            let times = step_times(self.predicted_of(job), live);
            (0..).zip(times).map(move |(step, (logged, predicted_ms))| {
                let took_ms = logged.took.as_millis();
                (name, LiveStep { step, stage: logged.stage, rows: logged.rows, took_ms, predicted_ms })
            })
        });
        write_live_steps(&dir.join("steps.parquet"), steps)?;
        Ok(())
    }

    fn predicted_of(&self, job: Job) -> &Served {
        &self.predicted.part(job.run, job.part)[job.scheduler]
    }

    fn name(&self, job: Job) -> LiveRun<'_> {
        LiveRun { run: &self.runs[job.run].entry.name, scheduler: &job.planned(self.runs).name, repeat: job.repeat }
    }
}

fn by_request(served: &Served) -> BTreeMap<RequestId, &RequestRecord> {
    served.log.requests.iter().map(|record| (record.request, record)).collect()
}
