//! An executor that spends the time that a profile says, on a clock that only it advances.

use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;

use calibrate::calibration::Setup;
use calibrate::error::CalibrateError;
use calibrate::measure::{Journal, MeasurementPlan, Progress, Timer, measure};
use engine::architecture::Architecture;
use engine::batch::{Batch, Outcome, RowOutcome, Stage};
use engine::executor::{Clock, Executor, Reject, VirtualClock};
use engine::layout::Layout;
use engine::live::{LiveConfig, Tables};
use engine::profile::{Buckets, DeviceSpec, HostCost, PrefillCost, Profile, StageCost, Transfer};
use engine::request::RequestId;
use engine::submission::Submission;
use engine::units::Nanos;

/// See the module's text.
pub(crate) struct Fake {
    machine: Profile,
    model: Architecture,
    config: LiveConfig,
    tables: Tables,
    queue: VecDeque<Batch>,
    /// Launches until it breaks, of all fakes together.
    lives: Rc<Cell<u64>>,
}

#[derive(Debug, thiserror::Error)]
#[error("the fake broke")]
pub(crate) struct Broken;

impl Fake {
    pub(crate) fn new(machine: &Profile, config: LiveConfig, lives: &Rc<Cell<u64>>) -> Self {
        let scheduler = &config.scheduler;
        let kv = &scheduler.kv;
        Self {
            tables: Tables::new(kv.block_tokens, scheduler.max_num_seqs),
            model: Architecture::builtin(&machine.model).expect("built in"),
            machine: machine.clone(),
            queue: VecDeque::new(),
            lives: Rc::clone(lives),
            config,
        }
    }

    /// As the simulator computes it.
    fn time_ms(&self, batch: &Batch) -> f64 {
        let (machine, rows) = (&self.machine, &batch.rows);
        let padded = machine.buckets.pad(rows.len() as u32);
        let entries = rows.iter().map(|row| u64::from(row.context())).sum();
        let staged_ms = machine.stage_overhead_us / 1e3;
        let loops = f64::from(self.config.scheduler.r_max.0);
        match batch.stage {
            Stage::Prelude => machine.prelude.time_ms(padded, entries) + staged_ms,
            Stage::Core => machine.core.time_ms(padded, entries) + staged_ms,
            Stage::Coda => machine.coda.time_ms(padded, entries) + staged_ms,
            Stage::Forward => {
                machine.prelude.time_ms(padded, entries)
                    + loops * machine.core.time_ms(padded, entries)
                    + machine.coda.time_ms(padded, entries)
            }
            Stage::Prefill => machine.prefill.time_ms(rows.iter().map(|row| (row.span.first, row.span.count))),
            Stage::Offload | Stage::Restore => {
                let bytes_per_token = self.model.kv_bytes_per_token(self.config.scheduler.kv.layout) as f64;
                let tokens: u32 = rows.iter().map(|row| row.span.count).sum();
                f64::from(tokens) * bytes_per_token / machine.transfer.offload_gb_per_s / 1e6
            }
        }
    }

    /// Every row's slot is its request's and has the pages that it touches.
    fn check(&self, batch: &Batch) {
        let scheduler = &self.config.scheduler;
        let pages_in_all = scheduler.kv.blocks / u32::from(scheduler.kv.layout.planes(scheduler.r_max));
        for row in &batch.rows {
            self.tables.check_owner(row.slot, row.request);
            let pages = self.tables.pages(row.slot);
            assert!(pages.len() as u32 * scheduler.kv.block_tokens >= row.context(), "{row:?} has too few pages");
            assert!(pages.iter().all(|page| page.0 < pages_in_all), "{row:?} has a page that there is not");
        }
    }
}

impl Executor for Fake {
    type Error = Broken;

    fn submit(&mut self, _: &Submission) -> Result<(), Reject> {
        Ok(())
    }

    fn forget(&mut self, _: RequestId) {}

    fn launch(&mut self, batch: Batch, clock: &mut dyn Clock) -> Result<(), Broken> {
        self.lives.set(self.lives.get().checked_sub(1).ok_or(Broken)?);
        clock.wait_until(clock.now() + Nanos::from_micros(self.machine.host.launch_us));
        batch.edits.iter().for_each(|edit| {
            self.tables.apply(edit);
        });
        self.check(&batch);
        self.queue.push_back(batch);
        Ok(())
    }

    fn wait(&mut self, clock: &mut dyn Clock) -> Result<Outcome, Broken> {
        let batch = self.queue.pop_front().expect("a batch was launched");
        let started = clock.now();
        clock.wait_until(started + Nanos::from_micros(self.time_ms(&batch) * 1e3));
        let finished = clock.now();
        clock.wait_until(finished + self.machine.host.read_time());
        let r_max = self.config.scheduler.r_max;
        let leaves = |depth| batch.stage == Stage::Core && depth == r_max;
        let outcome = |depth| RowOutcome { leaves_after: leaves(depth).then_some(r_max), ..RowOutcome::default() };
        let rows = batch.rows.iter().map(|row| outcome(row.depth)).collect();
        Ok(Outcome { batch, started, finished, rows, tokens: Vec::new(), scores: Vec::new() })
    }
}

/// A machine like a CPU: whole tiles of rows, little per launch.
pub(crate) fn machine(model: &str) -> Profile {
    let model = Architecture::builtin(model).expect("built in");
    let device = DeviceSpec { name: "fake".into(), bandwidth_gb_per_s: 10.0, compute_tflops: 0.1 };
    let cost = |delta_ms, gamma_us, alpha_ns| StageCost { delta_ms, floor_ms: 0.0, gamma_us, alpha_ns };
    // Only layers read KV, and Ouro has none outside the loop.
    let kv = if model.prelude_layers > 0 { 1.0 } else { 0.0 };
    Profile {
        core: cost(0.05, 6.0, 150.0),
        prelude: cost(0.004, 0.5, 20.0 * kv),
        coda: cost(0.01, 1.5, 30.0 * kv),
        prefill: PrefillCost { delta_ms: 0.1, gamma_us: 30.0, alpha_ns: 400.0, ..PrefillCost::default() },
        stage_overhead_us: 12.0,
        host: HostCost { build_us: 0.0, build_row_us: 0.0, launch_us: 3.0, read_us: 2.0 },
        buckets: Buckets::List(vec![8, 16, 24, 32, 40, 48, 56, 64].try_into().expect("rising")),
        transfer: Transfer { offload_gb_per_s: 2.0, ..Transfer::default() },
        ..Profile::roofline(&device, &model)
    }
}

/// The plan of `calibrate`, without its budget.
pub(crate) fn plan(model: &Architecture, rounds: u32) -> MeasurementPlan {
    MeasurementPlan { rounds, ..MeasurementPlan::small(model, Layout::LastExited, Nanos::from_secs(1e6)) }
}

/// Measures a machine that breaks after so many launches.
pub(crate) fn run(
    machine: &Profile,
    plan: &MeasurementPlan,
    journal: &mut Journal,
    lives: u64,
) -> Result<Progress, CalibrateError> {
    let model = Architecture::builtin(&machine.model).expect("built in");
    let lives = Rc::new(Cell::new(lives));
    let mut timer = Timer { clock: &mut VirtualClock::default(), run_delay: &mut || Nanos::ZERO };
    measure(plan, &model, |config| Ok(Fake::new(machine, config, &lives)), &mut timer, journal, &mut |_| ())
}

/// What the measurements of a machine are fitted with.
pub(crate) fn setup(machine: &Profile, plan: &MeasurementPlan) -> Setup {
    let model = Architecture::builtin(&machine.model).expect("built in");
    Setup {
        base: Profile::roofline(&machine.device, &model),
        device: machine.device.clone(),
        buckets: machine.buckets,
        graphs: false,
        kv_tile_tokens: 0,
        layout: plan.layout,
        resamples: 20,
        seed: 0,
        model,
    }
}
