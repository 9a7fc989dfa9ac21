//! Runs the real scheduler on a made-up device, so that reports have something lifelike to show.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::ops::ControlFlow;

use engine::architecture::Architecture;
use engine::batch::{Batch, Outcome, RowOutcome, Stage};
use engine::event_loop::{self, Observer, Refused, Step};
use engine::executor::{Clock, Executor, Reject, VirtualClock};
use engine::inbox::replay;
use engine::metrics::Recorder;
use engine::models::counter::{STRIDE, mix};
use engine::request::{Arrival, Request, RequestId};
use engine::scheduler::{KvConfig, Mode, Overlap, Scheduler, SchedulerConfig};
use engine::submission::Submission;
use engine::units::{Depth, Nanos};

pub(crate) const MAX_NUM_SEQS: u32 = 64;
pub(crate) const KV_BLOCKS: u32 = 4096;

/// A scheduler with the paper's settings and a smaller pool.
pub(crate) fn scheduler(mode: Mode) -> Scheduler {
    let defaults = SchedulerConfig::of(&Architecture::builtin("ouro-1.4b").expect("built in"));
    Scheduler::new(SchedulerConfig {
        mode,
        overlap: Overlap::Synchronous,
        max_num_seqs: MAX_NUM_SEQS,
        max_context_tokens: 4096,
        kv: KvConfig { blocks: KV_BLOCKS, ..defaults.kv },
        ..defaults
    })
    .expect("the settings are valid")
}

/// `count` requests with skewed lengths, all at once or at `rate_per_s`; every 50th is too long to be served.
pub(crate) fn arrivals(count: u32, rate_per_s: Option<f64>) -> impl Iterator<Item = Arrival> {
    let mut clock_s = 0.0;
    (0..count).map(move |id| {
        if let Some(rate) = rate_per_s {
            clock_s -= (1.0 - noise(u64::from(id), 1)).ln() / rate;
        }
        let length = |stream, median: f64| (median * (3.0 * (noise(u64::from(id), stream) - 0.5)).exp()) as u32 + 1;
        let output_tokens = if id % 50 == 49 { 5000 } else { length(3, 220.0).min(2000) };
        let request = Request {
            id: RequestId(id),
            arrival: Nanos::from_secs(clock_s),
            prompt_tokens: length(2, 180.0).min(2000),
            max_output_tokens: output_tokens,
        };
        Arrival { request, output_tokens, cancel_after: None }
    })
}

/// Serves the arrivals on the made-up device and tells `on_step` of every step, once the recorder has seen it.
pub(crate) fn serve(
    mode: Mode,
    arrivals: &mut dyn Iterator<Item = Arrival>,
    on_step: &mut dyn FnMut(&Step, &mut Recorder),
) -> Recorder {
    let mut observer = Watched { recorder: Recorder::new(MAX_NUM_SEQS, None), on_step };
    let Ok(()) = event_loop::run(
        &mut scheduler(mode),
        &mut Device::default(),
        &mut VirtualClock::default(),
        &mut replay(arrivals),
        &mut observer,
    );
    observer.recorder
}

struct Watched<'a> {
    recorder: Recorder,
    on_step: &'a mut dyn FnMut(&Step, &mut Recorder),
}

impl Observer for Watched<'_> {
    fn arrived(&mut self, arrival: &Arrival, now: Nanos, refused: Option<&Refused>) {
        self.recorder.arrived(arrival, now, refused);
    }

    fn step(&mut self, step: &Step) -> ControlFlow<()> {
        self.recorder.step(step);
        (self.on_step)(step, &mut self.recorder);
        ControlFlow::Continue(())
    }
}

#[derive(Default)]
struct Device {
    queue: VecDeque<Outcome>,
    free_at: Nanos,
}

impl Executor for Device {
    type Error = Infallible;

    fn submit(&mut self, _: &Submission) -> Result<(), Reject> {
        Ok(())
    }

    fn forget(&mut self, _: RequestId) {}

    fn launch(&mut self, batch: Batch, clock: &mut dyn Clock) -> Result<(), Infallible> {
        let started = self.free_at.max(clock.now());
        let finished = started + Nanos::from_micros(micros(&batch));
        self.free_at = finished;
        let exits = |row: &engine::batch::Row| row.depth >= exit_depth(row.request, row.token);
        let rows = batch
            .rows
            .iter()
            .map(|row| RowOutcome { leaves_after: exits(row).then_some(row.depth), ..RowOutcome::default() })
            .collect();
        self.queue.push_back(Outcome { batch, started, finished, rows, tokens: Vec::new(), scores: Vec::new() });
        Ok(())
    }

    fn wait(&mut self, clock: &mut dyn Clock) -> Result<Outcome, Infallible> {
        let outcome = self.queue.pop_front().expect("a batch is in flight");
        clock.wait_until(outcome.finished);
        Ok(outcome)
    }
}

fn micros(batch: &Batch) -> f64 {
    let rows = batch.rows.len() as f64;
    let context: f64 = batch.rows.iter().map(|row| f64::from(row.context())).sum();
    let core = 900.0 + 2.0 * rows + 0.004 * context;
    match batch.stage {
        Stage::Prefill => 2000.0 + 9.0 * batch.rows.iter().map(|row| f64::from(row.span.count)).sum::<f64>(),
        Stage::Prelude => 30.0,
        Stage::Core => core,
        Stage::Coda => 110.0,
        Stage::Forward => 140.0 + 4.0 * core,
        Stage::Offload | Stage::Restore => 0.04 * context,
    }
}

fn exit_depth(request: RequestId, token: u32) -> Depth {
    match noise(u64::from(request.0) << 32 | u64::from(token), 4) {
        u if u < 0.35 => Depth(2),
        u if u < 0.8 => Depth(3),
        _ => Depth(4),
    }
}

/// A number in 0..1 that depends on nothing but its arguments.
fn noise(index: u64, stream: u64) -> f64 {
    (mix(index.wrapping_mul(STRIDE).wrapping_add(stream << 56)) >> 11) as f64 / (1_u64 << 53) as f64
}
