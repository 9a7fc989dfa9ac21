//! Decode stages recorded at start, one graph per stage and row bucket: what a step costs the host is one launch.
//!
//! Depths, lengths and tables are read from device memory, so one core graph serves every depth and context.

use std::collections::BTreeMap;

use super::device::Graph;
use super::error::CudaError;
use super::model::DeviceModel;
use super::ops::Ops;
use super::products::Phase;
use super::stages::{Rows, StageRun};
use super::store::Store;
use crate::batch::Stage;
use crate::live::{LiveConfig, Work};
use crate::models::criterion::Criterion;
use crate::profile::Buckets;

/// Row counts that graphs are recorded for: rows behind a batch's last are computed and dropped.
const BUCKETS: [usize; 19] = [1, 2, 4, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 128, 192, 256, 320, 384, 512];

/// The row counts that decode steps are padded to, as a profile states them.
pub fn row_buckets() -> Buckets {
    let sizes = BUCKETS.map(|rows| rows as u32).to_vec();
    Buckets::List(sizes.try_into().expect("a short rising list"))
}

/// The decode stages.
const DECODE: [Stage; 4] = [Stage::Prelude, Stage::Core, Stage::Coda, Stage::Forward];

/// What decode work runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Decode {
    pub(super) stage: Stage,
    /// Core: rows are read out, since their logits decide whether they leave.
    pub(super) reads_out: bool,
}

impl Decode {
    pub(super) fn of(work: &Work, criterion: Criterion) -> Self {
        Self { stage: work.stage, reads_out: work.signals && criterion.reads_logits() }
    }

    /// All that a run can ask for.
    fn all(criterion: Criterion) -> impl Iterator<Item = Self> {
        let plain = DECODE.map(|stage| Self { stage, reads_out: false });
        let reading = criterion.reads_logits().then_some(Self { stage: Stage::Core, reads_out: true });
        plain.into_iter().chain(reading)
    }
}

/// A model's decode stages on a device, recorded or not.
#[derive(Debug)]
pub(super) struct Graphs {
    graphs: BTreeMap<(Decode, usize), Graph>,
}

/// The bucket of a number of rows; beyond the last, multiples of it.
pub(super) fn bucket(rows: usize) -> usize {
    let last = BUCKETS[BUCKETS.len() - 1];
    BUCKETS.into_iter().find(|&bucket| bucket >= rows).unwrap_or_else(|| rows.next_multiple_of(last))
}

/// Queues a decode stage, kernel by kernel. `count` rows are launched, the header says how many are real; `spans`: some
/// attend to each other.
pub(super) fn queue(
    (Decode { stage, reads_out }, spans): (Decode, bool),
    count: usize,
    (ops, model, store): (&Ops, &DeviceModel, &Store),
    config: &LiveConfig,
) -> Result<(), CudaError> {
    let at = |offset| store.scratch.upload.at(offset);
    let rows = Rows {
        phase: Phase::Decode,
        count,
        header: at(0),
        rows: at(store.offsets.rows()),
        parts: at(store.offsets.items()),
        tiles: 0,
    };
    let mut run = StageRun {
        ops,
        model,
        store,
        rows,
        layout: config.scheduler.kv.layout,
        initial_state: config.initial_state,
        r_max: config.scheduler.r_max,
        criterion: config.exits.criterion(&model.architecture),
        spans,
        launches: 0,
    };
    let loops = if stage == Stage::Forward { run.r_max.0 } else { 1 };
    let launches = loops as usize * model.core.len() + model.prelude.len() + model.coda.len();
    assert!(launches * 4 <= store.scratch.counters.bytes(), "a stage has more attention launches than work counters");
    ops.begin(at(0), store.kv.tables.address(), (store.scratch.counters.address(), launches as i32))?;
    if matches!(stage, Stage::Prelude | Stage::Forward) {
        run.prelude()?;
    }
    match stage {
        Stage::Core => run.core(0)?,
        Stage::Forward => (1..=run.r_max.0).try_for_each(|depth| run.core(depth))?,
        _ => {}
    }
    if reads_out {
        run.read_out()?;
    }
    if matches!(stage, Stage::Coda | Stage::Forward) {
        run.coda()?;
        run.emit((at(0), at(store.offsets.draws())), store.scratch.y.address(), count)?;
    }
    Ok(())
}

impl Graphs {
    /// Nothing recorded: every stage is queued kernel by kernel.
    pub(super) fn none() -> Self {
        Self { graphs: BTreeMap::new() }
    }

    /// Records every decode stage for batches of up to `rows` rows. The upload must hold a header of no rows.
    pub(super) fn record(
        rows: usize,
        (ops, model, store): (&Ops, &DeviceModel, &Store),
        config: &LiveConfig,
    ) -> Result<Self, CudaError> {
        let mut graphs = BTreeMap::new();
        for count in BUCKETS.into_iter().filter(|&count| count <= bucket(rows)) {
            for decode in Decode::all(config.exits.criterion(&model.architecture)) {
                let queue = || queue((decode, false), count, (ops, model, store), config);
                // Once for real: libraries load their kernels and choose algorithms, which a capture cannot do.
                queue()?;
                ops.device.synchronize()?;
                graphs.insert((decode, count), ops.device.capture(queue)?);
            }
        }
        Ok(Self { graphs })
    }

    pub(super) fn get(&self, decode: Decode, rows: usize) -> Option<&Graph> {
        self.graphs.get(&(decode, bucket(rows)))
    }
}
