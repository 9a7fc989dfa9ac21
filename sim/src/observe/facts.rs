//! What only a client knows of a run: how it asked, whether it kept up, what failed, and what the server counted.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use client::{Health, LATE, Run, Seen};
use engine::units::Nanos;
use files::write_whole;
use reports::{ReportError, number};
use serde::Serialize;

use super::Server;

/// The file's name.
pub const CLIENT: &str = "client.json";

/// All runs against one server.
#[derive(Clone, Debug, Serialize)]
pub struct Observed {
    server: String,
    path: &'static str,
    model: String,
    prompts: &'static str,
    outputs_as_asked: bool,
    server_counts_tokens: bool,
    server_tells_depths: bool,
    /// Figures that the prediction has and the server does not tell.
    missing: Vec<String>,
    runs: Vec<RunFacts>,
}

/// One run.
#[derive(Clone, Debug, Serialize)]
pub(super) struct RunFacts {
    pub(super) sent: usize,
    answered: usize,
    failures: BTreeMap<String, Failures>,
    /// Over the time from the first to the last request; none in a closed loop, and if they were due at once.
    intended_per_s: Option<f64>,
    achieved_per_s: Option<f64>,
    /// Of the answered requests.
    prompt_tokens_asked: u64,
    /// None if the server did not count those of every answer.
    prompt_tokens_counted: Option<u64>,
    output_tokens_asked: u64,
    output_tokens_got: u64,
    /// Answers with fewer tokens than asked for.
    shorter: usize,
    /// Answers whose tokens cannot be told apart in the stream.
    not_told_apart: usize,
    late_after_s: f64,
    kept_up: bool,
    client: Health,
}

/// Failures of one kind.
#[derive(Clone, Debug, Serialize)]
struct Failures {
    count: usize,
    /// What the first of them said.
    first: String,
}

impl RunFacts {
    pub(super) fn of(run: &Run, closed: bool) -> Self {
        let mut failures: BTreeMap<String, Failures> = BTreeMap::new();
        for failure in run.seen.iter().filter_map(|seen| seen.result.as_ref().err()) {
            let first = || Failures { count: 0, first: failure.said.clone() };
            failures.entry(failure.kind.to_string()).or_insert_with(first).count += 1;
        }
        let answers: Vec<_> =
            run.seen.iter().filter_map(|seen| Some((&seen.arrival, seen.result.as_ref().ok()?))).collect();
        let counted = answers.iter().map(|(_, answer)| answer.prompt_tokens.map(u64::from));
        Self {
            sent: run.seen.len(),
            answered: answers.len(),
            failures,
            intended_per_s: rate(&run.seen, |seen| seen.due).filter(|_| !closed),
            achieved_per_s: rate(&run.seen, |seen| seen.sent),
            prompt_tokens_asked: answers.iter().map(|(asked, _)| u64::from(asked.request.prompt_tokens)).sum(),
            prompt_tokens_counted: counted.sum(),
            output_tokens_asked: answers.iter().map(|(asked, _)| u64::from(asked.output_tokens)).sum(),
            output_tokens_got: answers.iter().map(|(_, answer)| u64::from(answer.output_tokens)).sum(),
            shorter: answers.iter().filter(|(asked, answer)| answer.output_tokens < asked.output_tokens).count(),
            not_told_apart: answers.iter().filter(|(_, answer)| answer.tokens.is_empty()).count(),
            late_after_s: LATE.as_secs(),
            kept_up: run.health.kept_up(),
            client: run.health,
        }
    }

    /// The run in a line.
    pub(super) fn line(&self) -> String {
        let rates = match (self.intended_per_s, self.achieved_per_s) {
            (Some(intended), Some(achieved)) => {
                format!(", {} requests/s intended and {} achieved", number(intended), number(achieved))
            }
            (None, Some(achieved)) => format!(", {} requests/s", number(achieved)),
            (_, None) => String::new(),
        };
        let failed = if self.failures.is_empty() { String::new() } else { format!("; {}", self.failures_text()) };
        let Health { send_delay, late, lag, connections } = &self.client;
        format!(
            "{} sent, {} answered{rates}{failed}; {late} sent more than {} ms late (p99 {:.2} ms, at most {:.2} ms), times \
             read up to {:.2} ms late (p99), {connections} connections",
            self.sent,
            self.answered,
            1e3 * self.late_after_s,
            1e3 * send_delay.p99,
            1e3 * send_delay.max,
            1e3 * lag.p99
        )
    }

    /// The failures by kind.
    pub(super) fn failures_text(&self) -> String {
        let kinds = self.failures.iter().map(|(kind, Failures { count, first })| match first.is_empty() {
            true => format!("{count} failed: {kind}"),
            false => format!("{count} failed: {kind} ({first})"),
        });
        kinds.collect::<Vec<_>>().join("; ")
    }
}

impl Observed {
    pub(super) fn new(server: &Server, runs: Vec<RunFacts>, missing: Vec<String>) -> Self {
        Self {
            server: server.endpoint.to_string(),
            path: match server.dialect.path {
                client::Path::Completions => "completions",
                client::Path::Chat => "chat/completions",
            },
            model: server.dialect.model.clone(),
            prompts: server.dialect.prompts(),
            outputs_as_asked: server.dialect.fixes_length,
            server_counts_tokens: runs.iter().all(|run| run.prompt_tokens_counted.is_some()),
            server_tells_depths: server.tells_depths,
            missing,
            runs,
        }
    }

    /// What a reader must know to judge the figures, a sentence a line.
    pub fn notes(&self) -> Vec<String> {
        let first = &self.runs[0];
        let mut notes = vec![format!(
            "Asked {}/{} for `{}`; prompts as {}, {} tokens of answered requests in the first run{}.",
            self.server,
            self.path,
            self.model,
            self.prompts,
            first.prompt_tokens_asked,
            match first.prompt_tokens_counted {
                Some(counted) => format!(", of which the server counted {counted}"),
                None => ", which the server did not count".into(),
            }
        )];
        let (got, asked, shorter) = (first.output_tokens_got, first.output_tokens_asked, first.shorter);
        let how = if self.outputs_as_asked { "with ignore_eos and min_tokens" } else { "by max_tokens alone" };
        notes.push(format!(
            "Outputs: {asked} tokens asked for {how}, {got} came; {shorter} of {} answers were shorter than asked.",
            first.answered
        ));
        for (index, run) in self.runs.iter().enumerate() {
            notes.push(format!("Run {}: {}.", index + 1, run.line()));
            if !run.kept_up {
                notes.push(format!(
                    "Run {}: THE CLIENT DID NOT KEEP UP, so what it measured is partly its own delay: lower the rate, or give \
                     it cores of its own.",
                    index + 1
                ));
            }
        }
        if first.not_told_apart > 0 {
            notes.push(format!(
                "{} answers have other numbers of events than of tokens: their gaps between tokens are not known.",
                first.not_told_apart
            ));
        }
        if !self.server_tells_depths {
            notes.push("The server does not tell exit depths.".into());
        }
        if !self.missing.is_empty() {
            notes.push(format!("Predicted, but not seen from outside: {}.", self.missing.join(", ")));
        }
        notes
    }

    /// The same for the terminal.
    pub fn text(&self) -> String {
        self.notes().iter().fold(String::new(), |mut text, note| {
            let _ = writeln!(text, "{note}");
            text
        })
    }

    /// Writes everything as `client.json`.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, folder: &Path) -> Result<PathBuf, ReportError> {
        let path = folder.join(CLIENT);
        let json = serde_json::to_string_pretty(self);
        let json = json.map_err(|source| ReportError::Json { path: path.clone(), source })? + "\n";
        write_whole(&path, json.as_bytes()).map_err(|source| ReportError::Io { path: path.clone(), source })?;
        Ok(path)
    }
}

/// Requests per second from the first to the last; `None` if that is no time.
fn rate(seen: &[Seen], at: impl Fn(&Seen) -> Nanos) -> Option<f64> {
    let (first, last) = (seen.iter().map(&at).min()?, seen.iter().map(&at).max()?);
    (last > first).then(|| (seen.len() - 1) as f64 / (last - first).as_secs())
}
