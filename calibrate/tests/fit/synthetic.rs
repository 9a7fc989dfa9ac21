//! Measurements of a machine whose costs are known.

use calibrate::cost::Sample;
use engine::profile::StageCost;
use rand::RngExt;
use rand_distr::StandardNormal;
use rand_pcg::Pcg64;

/// Ouro-1.4B's core on an H100, nominally.
pub(crate) const LINEAR: StageCost = StageCost { delta_ms: 5.4, floor_ms: 0.0, gamma_us: 26.94, alpha_ns: 90.9 };

/// A core that streams its weights for as long as 100 rows compute, between two buckets.
pub(crate) const ROOFLINE: StageCost = StageCost { delta_ms: 0.8, floor_ms: 2.6, gamma_us: 26.0, alpha_ns: 60.0 };

/// Batch sizes up to what 320,000 KV entries hold, at each context.
pub(crate) fn grid() -> Vec<(u32, u32)> {
    let batches = (0..10).map(|power| 1_u32 << power);
    let points = batches.flat_map(|batch| [128, 512, 2048, 8192].map(|context| (batch, context)));
    points.filter(|(batch, context)| batch * context <= 320_000).collect()
}

/// Every 32nd batch size too.
pub(crate) fn dense_grid() -> Vec<(u32, u32)> {
    let steps = (1..16).flat_map(|step| [(32 * step, 128), (32 * step, 500)]);
    grid().into_iter().chain(steps).collect()
}

/// A source of noise.
pub(crate) fn noise(seed: u64) -> Pcg64 {
    Pcg64::new(seed.into(), 1)
}

/// `time` with a relative error of the given standard deviation.
pub(crate) fn measured(time_ms: f64, deviation: f64, random: &mut Pcg64) -> f64 {
    time_ms * (1.0 + deviation * random.sample::<f64, _>(StandardNormal))
}

/// Times of a cost over the grid.
pub(crate) fn samples(cost: StageCost, deviation: f64, seed: u64) -> Vec<Sample> {
    samples_at(&grid(), cost, deviation, seed)
}

/// Times of a cost at some points, none padded.
pub(crate) fn samples_at(points: &[(u32, u32)], cost: StageCost, deviation: f64, seed: u64) -> Vec<Sample> {
    let mut random = noise(seed);
    let sample = |&(batch, context)| {
        let entries = u64::from(batch) * u64::from(context);
        let time_ms = measured(cost.time_ms(batch, entries), deviation, &mut random);
        Sample { batch, context, rows: batch.into(), entries: entries as f64, time_ms, scale_ms: time_ms }
    };
    points.iter().map(sample).collect()
}

/// A cost in the order of `COEFFICIENTS`.
pub(crate) fn truth(cost: StageCost) -> [f64; 4] {
    [cost.delta_ms, cost.floor_ms, cost.gamma_us, cost.alpha_ns]
}
