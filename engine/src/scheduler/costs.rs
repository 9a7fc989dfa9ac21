//! What the adaptive coda knows of the device.

use serde::{Deserialize, Serialize};

use crate::cost::{Buckets, StageCost};

/// A profile's costs, as plain numbers that can be copied. Host time is left out: all overlap modes must decide alike.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct StageCosts {
    /// One core step.
    pub core: StageCost,
    /// One prelude.
    pub prelude: StageCost,
    /// One coda.
    pub coda: StageCost,
    /// Device time that each stage's launch adds.
    pub stage_overhead_us: f64,
    /// Batch sizes for which there are graphs.
    pub buckets: Buckets,
}

impl StageCosts {
    /// What a core step costs beyond its rows' own time.
    pub(super) fn core_waste_ms(&self, rows: u32) -> f64 {
        self.waste_ms(&self.core, rows)
    }

    /// The same of a coda and the prelude behind it.
    pub(super) fn boundary_waste_ms(&self, rows: u32) -> f64 {
        self.waste_ms(&self.prelude, rows) + self.waste_ms(&self.coda, rows)
    }

    fn waste_ms(&self, cost: &StageCost, rows: u32) -> f64 {
        let launch_ms = cost.time_ms(self.buckets.pad(rows), 0) + self.stage_overhead_us / 1e3;
        launch_ms - cost.gamma_us * f64::from(rows) / 1e3
    }
}
