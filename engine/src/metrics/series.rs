//! How queues and batches went over time, in bounded memory.

use serde::{Deserialize, Serialize};

use crate::units::Nanos;

/// Points kept at most; a full series halves itself.
const CAPACITY: usize = 2048;

/// Means over a stretch of steps, weighted by time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SeriesPoint {
    /// Start of the stretch, in seconds.
    pub start_s: f64,
    /// End of the stretch, in seconds.
    pub end_s: f64,
    /// Rows per core (or forward) step; `None` if the stretch has none.
    pub core_batch: Option<f64>,
    /// Requests waiting for admission.
    pub prompt_queue: f64,
    /// Sequences with a slot.
    pub resident: f64,
    /// Core KV blocks in use.
    pub kv_used_blocks: f64,
}

/// One step's contribution.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub(super) start: Nanos,
    pub(super) end: Nanos,
    pub(super) core_rows: Option<u32>,
    pub(super) prompt_queue: u32,
    pub(super) resident: u32,
    pub(super) kv_used_blocks: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Bin {
    start_ns: u64,
    end_ns: u64,
    weight: f64,
    prompt_queue: f64,
    resident: f64,
    kv_used_blocks: f64,
    core_rows: u64,
    core_steps: u64,
}

/// Collects samples; see [`SeriesPoint`].
#[derive(Clone, Debug)]
pub(super) struct Series {
    bins: Vec<Bin>,
    steps_per_bin: u64,
    steps: u64,
    last: Option<Sample>,
}

impl Series {
    pub(super) fn new() -> Self {
        Self { bins: Vec::with_capacity(CAPACITY), steps_per_bin: 1, steps: 0, last: None }
    }

    pub(super) fn add(&mut self, sample: &Sample) {
        if self.steps.is_multiple_of(self.steps_per_bin) {
            if self.bins.len() == CAPACITY {
                self.bins = self.bins.chunks(2).map(|pair| pair[0].merge(&pair[1])).collect();
                self.steps_per_bin *= 2;
            }
            if self.steps.is_multiple_of(self.steps_per_bin) {
                let start = self.last.map_or(sample.start, |last| last.end);
                self.bins.push(Bin { start_ns: start.0, ..Bin::default() });
            }
        }
        self.steps += 1;
        let before = self.last.replace(*sample).unwrap_or(*sample);
        if let Some(bin) = self.bins.last_mut() {
            bin.add(&before, sample);
        }
    }

    pub(super) fn points(&self) -> Vec<SeriesPoint> {
        self.bins.iter().map(Bin::point).collect()
    }
}

impl Bin {
    fn add(&mut self, before: &Sample, sample: &Sample) {
        // Queues stand as a step left them until the next starts, and are taken to change evenly while it runs.
        let idle = sample.start.saturating_sub(before.end).0 as f64;
        let busy = (sample.end - sample.start).0.max(1) as f64;
        let integral =
            |before: u32, after: u32| (idle + busy / 2.0) * f64::from(before) + busy / 2.0 * f64::from(after);
        self.end_ns = sample.end.0;
        self.weight += idle + busy;
        self.prompt_queue += integral(before.prompt_queue, sample.prompt_queue);
        self.resident += integral(before.resident, sample.resident);
        self.kv_used_blocks += integral(before.kv_used_blocks, sample.kv_used_blocks);
        if let Some(rows) = sample.core_rows {
            self.core_rows += u64::from(rows);
            self.core_steps += 1;
        }
    }

    fn merge(&self, later: &Self) -> Self {
        Self {
            start_ns: self.start_ns,
            end_ns: later.end_ns,
            weight: self.weight + later.weight,
            prompt_queue: self.prompt_queue + later.prompt_queue,
            resident: self.resident + later.resident,
            kv_used_blocks: self.kv_used_blocks + later.kv_used_blocks,
            core_rows: self.core_rows + later.core_rows,
            core_steps: self.core_steps + later.core_steps,
        }
    }

    fn point(&self) -> SeriesPoint {
        SeriesPoint {
            start_s: self.start_ns as f64 / 1e9,
            end_s: self.end_ns as f64 / 1e9,
            core_batch: (self.core_steps > 0).then(|| self.core_rows as f64 / self.core_steps as f64),
            prompt_queue: self.prompt_queue / self.weight,
            resident: self.resident / self.weight,
            kv_used_blocks: self.kv_used_blocks / self.weight,
        }
    }
}
