//! The modelled executor: a device that runs batches one after the other, each for as long as a profile says.

use std::collections::VecDeque;

use engine::architecture::Architecture;
use engine::batch::{Batch, Emits, Outcome, Row, RowOutcome, Stage};
use engine::executor::{Clock, Executor, ExitSource, Reject};
use engine::layout::Layout;
use engine::profile::Profile;
use engine::request::RequestId;
use engine::scheduler::{Finish, Overlap, SchedulerConfig};
use engine::submission::Submission;
use engine::units::{Depth, Nanos};

/// See the module's text.
#[derive(Debug)]
pub struct Modelled<X> {
    profile: Profile,
    exits: X,
    r_max: Depth,
    overlap: Overlap,
    /// True output lengths by request, under `finish: eos`.
    output_tokens: Option<Vec<u32>>,
    /// Copying one token's KV from one plane to another; zero unless planes are copied.
    plane_copy_ms: f64,
    /// After every loop a row's logits decide whether it leaves, so the coda's layers and the LM head run each time.
    reads_out: bool,
    /// Moving one token's KV between device and host.
    offload_ms_per_token: f64,
    free_at: Nanos,
    running: VecDeque<Running>,
}

#[derive(Debug)]
struct Running {
    batch: Batch,
    started: Nanos,
    finished: Nanos,
}

/// A modelled device does not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Never {}

impl<X: ExitSource> Modelled<X> {
    /// A device with `profile`'s costs that replays `exits` for a scheduler of `config`.
    pub fn new(
        profile: &Profile,
        model: &Architecture,
        config: &SchedulerConfig,
        plane_copies: bool,
        exits: X,
    ) -> Self {
        let layout = config.kv.layout;
        let copy_ms = model.core_kv_bytes() as f64 / (profile.transfer.plane_copy_gb_per_s * 1e6);
        Self {
            r_max: config.r_max,
            overlap: config.overlap,
            output_tokens: (config.finish == Finish::Eos).then(Vec::new),
            plane_copy_ms: if plane_copies && layout == Layout::LastExited { copy_ms } else { 0.0 },
            offload_ms_per_token: model.kv_bytes_per_token(layout) as f64 / (profile.transfer.offload_gb_per_s * 1e6),
            reads_out: false,
            free_at: Nanos::ZERO,
            running: VecDeque::new(),
            profile: profile.clone(),
            exits,
        }
    }

    /// The same where a criterion of the logits decides: a core step then takes a coda's time besides its own.
    #[must_use]
    pub fn reading_out(self, reads_out: bool) -> Self {
        Self { reads_out, ..self }
    }

    fn duration(&self, batch: &Batch) -> Nanos {
        let profile = &self.profile;
        let rows = profile.buckets.pad(batch.rows.len() as u32);
        let context = || profile.kv_entries(batch.rows.iter().map(|row| row.context()));
        let staged_ms = profile.stage_overhead_us / 1e3;
        let ms = match batch.stage {
            Stage::Prefill => profile.prefill_ms(batch.rows.iter().map(|row| (row.span.first, row.span.count))),
            Stage::Prelude => profile.prelude_ms(rows, context()) + staged_ms,
            Stage::Core => {
                let context = context();
                let read_out_ms = if self.reads_out { profile.coda_ms(rows, context) } else { 0.0 };
                profile.core_ms(rows, context) + read_out_ms + staged_ms
            }
            Stage::Coda => profile.coda_ms(rows, context()) + staged_ms + self.copies_ms(batch),
            Stage::Forward => {
                let context = context();
                profile.prelude_ms(rows, context)
                    + f64::from(self.r_max.0) * profile.core_ms(rows, context)
                    + profile.coda_ms(rows, context)
            }
            Stage::Offload | Stage::Restore => {
                batch.rows.iter().map(|row| f64::from(row.span.count) * self.offload_ms_per_token).sum()
            }
        };
        Nanos::from_micros(ms * 1e3)
    }

    /// The planes that exited tokens skipped are filled when they reach the coda.
    fn copies_ms(&self, batch: &Batch) -> f64 {
        if self.plane_copy_ms == 0.0 {
            return 0.0;
        }
        batch.rows.iter().map(|row| f64::from(self.r_max.0 - row.depth.0) * self.plane_copy_ms).sum()
    }

    fn outcomes(&self, batch: &Batch) -> Vec<RowOutcome> {
        match batch.stage {
            Stage::Core => batch.rows.iter().map(|row| self.looped(row)).collect(),
            stage if stage.has_head() => batch.rows.iter().map(|row| self.made(row)).collect(),
            _ => vec![RowOutcome::default(); batch.rows.len()],
        }
    }

    /// What is told of a row's exit.
    fn looped(&self, row: &Row) -> RowOutcome {
        let exit = match row.span.count {
            1 => self.exits.exit_depth(row.request, row.token),
            _ => self.span_exit(row),
        };
        RowOutcome { leaves_after: self.overlap.reveals(exit, row.depth), ..RowOutcome::default() }
    }

    /// A span leaves when the last of its positions does.
    // No scheduler loops several positions in a row yet; inlined, this slows down the loop over a batch's rows.
    #[cold]
    fn span_exit(&self, row: &Row) -> Depth {
        let tokens = row.token..row.token + row.span.count;
        tokens.map(|token| self.exits.exit_depth(row.request, token)).max().unwrap_or(Depth::FIRST)
    }

    /// What is told of a row's tokens. Recorded tokens are the right ones, so every guess that is checked is right.
    fn made(&self, row: &Row) -> RowOutcome {
        let accepted = if row.emits == Emits::All { row.span.count - 1 } else { 0 };
        let told = RowOutcome { accepted, ..RowOutcome::default() };
        let Some(output_tokens) = &self.output_tokens else { return told };
        let made = row.token..row.token + row.delivered(&told);
        RowOutcome { finished: made.contains(&(output_tokens[row.request.0 as usize] - 1)), ..told }
    }
}

impl<X: ExitSource> Executor for Modelled<X> {
    type Error = Never;

    fn submit(&mut self, submission: &Submission) -> Result<(), Reject> {
        let arrival = &submission.arrival;
        if let Some(output_tokens) = &mut self.output_tokens {
            // Refused requests leave gaps, and a server's may come in another order than their numbers.
            let index = arrival.request.id.0 as usize;
            output_tokens.resize(output_tokens.len().max(index + 1), 0);
            output_tokens[index] = arrival.output_tokens;
        }
        Ok(())
    }

    fn forget(&mut self, _: RequestId) {}

    fn launch(&mut self, batch: Batch, clock: &mut dyn Clock) -> Result<(), Never> {
        clock.wait_until(clock.now() + self.profile.host.launch_time(batch.rows.len()));
        let started = self.free_at.max(clock.now());
        let finished = started + self.duration(&batch);
        self.free_at = finished;
        self.running.push_back(Running { batch, started, finished });
        Ok(())
    }

    fn wait(&mut self, clock: &mut dyn Clock) -> Result<Outcome, Never> {
        let Running { batch, started, finished } = self.running.pop_front().expect("a batch is in flight");
        clock.wait_until(finished + self.profile.host.read_time());
        let rows = self.outcomes(&batch);
        Ok(Outcome { batch, started, finished, rows, tokens: Vec::new(), scores: Vec::new() })
    }
}
