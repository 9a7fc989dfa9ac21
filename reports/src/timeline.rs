//! `trace.json`: a timeline for Perfetto (ui.perfetto.dev) or chrome://tracing.
//!
//! A process per scheduler, a track per stage, and counters for the core batch, the prompt queue and the KV blocks.

use std::fmt::{self, Display, Write as _};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use engine::batch::Stage;
use engine::event_loop::Step;
use engine::units::Nanos;

use crate::composition::write_composition;
use files::PendingFile;

use crate::error::{Result, at};
use crate::file::{create, finish};

/// Steps of each scheduler that a timeline shows unless told otherwise, about 5 MB.
pub const TIMELINE_STEPS: u64 = 20_000;

/// Writes `trace.json`, step by step; several schedulers share the file, one after the other.
///
/// Dropped before [`Self::finish`], it leaves no file.
pub struct TimelineWriter {
    file: PendingFile,
    out: BufWriter<Arc<File>>,
    max_steps: u64,
    processes: Vec<Process>,
    events: Events,
}

/// A scheduler's part of the timeline.
struct Process {
    name: String,
    steps: u64,
    tracks: [bool; Stage::ALL.len()],
    counters: [Option<u32>; 3],
}

impl TimelineWriter {
    /// Opens the file under a temporary name; it will hold the first `max_steps` steps of each scheduler.
    ///
    /// # Errors
    /// The file cannot be created.
    pub fn create(path: &Path, max_steps: u64) -> Result<Self> {
        let file = create(path)?;
        let out = BufWriter::new(file.handle());
        let text = String::from("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[");
        Ok(Self { file, out, max_steps, processes: Vec::new(), events: Events { text, process: 0, separator: "\n" } })
    }

    /// Adds a step.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn push(&mut self, scheduler: &str, step: &Step) -> Result<()> {
        if self.processes.last().is_none_or(|process| process.name != scheduler) {
            let (tracks, counters) = ([false; Stage::ALL.len()], [None; 3]);
            self.processes.push(Process { name: scheduler.into(), steps: 0, tracks, counters });
            self.events.process = self.processes.len();
            self.events.name_process(scheduler);
        }
        let process = self.processes.last_mut().expect("pushed above");
        process.steps += 1;
        if process.steps > self.max_steps {
            return Ok(());
        }
        let stage = step.outcome.batch.stage;
        if !std::mem::replace(&mut process.tracks[stage as usize], true) {
            self.events.name_track(stage);
        }
        self.events.slice(step);
        process.count(step, &mut self.events);
        self.write_out()
    }

    /// Closes the list, says what was left out, and gives the file its name.
    ///
    /// # Errors
    /// The file cannot be written or renamed.
    pub fn finish(mut self) -> Result<PathBuf> {
        self.events.text.push_str("\n],\"otherData\":{");
        let mut separator = "\n";
        for Process { name, steps, .. } in &self.processes {
            let (name, shown) = (quoted(name), steps.min(&self.max_steps));
            self.events.append(format_args!("{separator}{name}:\"the first {shown} of {steps} steps\""));
            separator = ",\n";
        }
        self.events.text.push_str("\n}}\n");
        self.write_out()?;
        self.out.flush().map_err(at(self.file.path()))?;
        finish(self.file)
    }

    fn write_out(&mut self) -> Result<()> {
        self.out.write_all(self.events.text.as_bytes()).map_err(at(self.file.path()))?;
        self.events.text.clear();
        Ok(())
    }
}

impl Process {
    /// Tells the counters that a step changed.
    fn count(&mut self, step: &Step, events: &mut Events) {
        let (outcome, queues) = (&step.outcome, &step.settled.queues);
        let core = matches!(outcome.batch.stage, Stage::Core | Stage::Forward);
        let rows = if core { Some(outcome.batch.rows.len() as u32) } else { self.counters[0] };
        let values = [
            ("core batch", "rows", outcome.started, rows),
            ("prompt queue", "requests", outcome.finished, Some(queues.prompt)),
            ("KV in use", "blocks", outcome.finished, Some(queues.kv_used_blocks)),
        ];
        for (last, (name, unit, time, value)) in self.counters.iter_mut().zip(values) {
            if let Some(value) = value.filter(|_| *last != value) {
                let ts = Micros(time);
                events.event(format_args!(
                    "\"ph\":\"C\",\"ts\":{ts},\"name\":\"{name}\",\"args\":{{\"{unit}\":{value}}}"
                ));
            }
            *last = value;
        }
    }
}

/// Events on their way to the file.
struct Events {
    text: String,
    process: usize,
    separator: &'static str,
}

impl Events {
    fn append(&mut self, text: fmt::Arguments<'_>) {
        self.text.write_fmt(text).expect("a string takes any text");
    }

    fn event(&mut self, fields: fmt::Arguments<'_>) {
        let (separator, process) = (std::mem::replace(&mut self.separator, ",\n"), self.process);
        self.append(format_args!("{separator}{{\"pid\":{process},{fields}}}"));
    }

    fn name_process(&mut self, name: &str) {
        let name = quoted(name);
        self.event(format_args!("\"ph\":\"M\",\"name\":\"process_name\",\"args\":{{\"name\":{name}}}"));
    }

    /// Names a track and puts it in its place: stages in the order of [`Stage::ALL`].
    fn name_track(&mut self, stage: Stage) {
        let (track, name) = (track(stage), stage.name());
        self.event(format_args!(
            "\"ph\":\"M\",\"tid\":{track},\"name\":\"thread_name\",\"args\":{{\"name\":\"{name}\"}}"
        ));
        self.event(format_args!(
            "\"ph\":\"M\",\"tid\":{track},\"name\":\"thread_sort_index\",\"args\":{{\"sort_index\":{track}}}"
        ));
    }

    /// A step as a stretch on its stage's track.
    fn slice(&mut self, step: &Step) {
        let (outcome, batch, queues) = (&step.outcome, &step.outcome.batch, &step.settled.queues);
        let tokens: u64 = batch.rows.iter().map(|row| u64::from(row.span.count)).sum();
        let context: u64 = batch.rows.iter().map(|row| u64::from(row.context())).sum();
        let mut depths = String::new();
        if batch.stage == Stage::Core {
            depths.push_str(",\"depths\":\"");
            write_composition(batch, &mut depths);
            depths.push('"');
        }
        self.event(format_args!(
            "\"ph\":\"X\",\"tid\":{},\"ts\":{},\"dur\":{},\"name\":\"{}\",\"args\":{{\"step\":{},\"rows\":{},\
             \"tokens\":{tokens},\"context\":{context},\"exits\":{}{depths},\"recurrent_queue\":{},\"coda_queue\":{},\
             \"decode_queue\":{},\"prompt_queue\":{},\"resident\":{}}}",
            track(batch.stage),
            Micros(outcome.started),
            Micros(outcome.finished - outcome.started),
            batch.stage.name(),
            batch.id,
            batch.rows.len(),
            step.settled.exits,
            queues.recurrent,
            queues.coda,
            queues.decode,
            queues.prompt,
            queues.resident,
        ));
    }
}

/// Tracks count from 1: track 0 would be the process itself.
fn track(stage: Stage) -> usize {
    stage as usize + 1
}

/// Nanoseconds as the format's microseconds, exactly.
struct Micros(Nanos);

impl Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Nanos(ns) = self.0;
        write!(f, "{}.{:03}", ns / 1000, ns % 1000)
    }
}

/// A name as a JSON string.
fn quoted(name: &str) -> String {
    serde_json::Value::from(name).to_string()
}
