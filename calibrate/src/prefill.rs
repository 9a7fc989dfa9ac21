//! The cost of prompt chunks, and what a tile of queries costs that goes through a long context by itself.

use engine::profile::{PrefillCost, StageCost};

use crate::cost::Sample;
use crate::error::CalibrateError;
use crate::measurements::{Measurement, Timed};
use crate::validation::{Judged, judge, judge_graphs};

/// Candidates for `rho`, a factor of 2^(1/4) apart.
const CANDIDATES: u32 = 64;

/// Left-out errors must shrink to this share before a device is said to work in tiles.
const CLEARLY: f64 = 0.9;

/// A fitted cost.
#[derive(Clone, Debug, PartialEq)]
pub struct Prefill {
    /// The forms, over samples whose entries are `max(P, rho L)`.
    pub judged: Judged,
    /// `rho`, see [`PrefillCost::tile_pairs`].
    pub tile_pairs: f64,
}

impl Prefill {
    /// Fits chunks. A device with graphs works in tiles and in products of certain sizes: it may have a line for each number of
    /// tokens, and gets the `rho` that predicts left-out chunks best.
    ///
    /// # Errors
    /// As [`judge`].
    pub fn new(chunks: &[Measurement], graphs: bool) -> Result<Self, CalibrateError> {
        let fit = |tile_pairs: f64| {
            let samples = chunks.iter().map(|chunk| sample(chunk, tile_pairs)).collect();
            let judge = if graphs { judge_graphs } else { judge };
            Ok::<_, CalibrateError>(Self { judged: judge(Timed::Prefill, samples, true)?, tile_pairs })
        };
        let plain = fit(0.0)?;
        let error = |fit: &Self| fit.judged.error_mean();
        let candidates = (0..CANDIDATES).filter(|_| graphs).map(|step| 2.0_f64.powf(f64::from(step) / 4.0).round());
        let best = candidates.filter_map(|rho| fit(rho).ok()).min_by(|a, b| error(a).total_cmp(&error(b)));
        Ok(best.filter(|best| error(best) < CLEARLY * error(&plain)).unwrap_or(plain))
    }

    /// The cost for a profile.
    pub fn cost(&self) -> PrefillCost {
        let StageCost { delta_ms, floor_ms, gamma_us, alpha_ns } = self.judged.chosen().fit.stage_cost();
        PrefillCost { delta_ms, floor_ms, gamma_us, alpha_ns, tile_pairs: self.tile_pairs }
    }
}

/// A chunk of n tokens behind p cached ones attends to p + 1, .., p + n entries.
fn sample(chunk: &Measurement, tile_pairs: f64) -> Sample {
    let [batch, context, tokens] = [chunk.point.batch, chunk.point.context, chunk.point.tokens].map(f64::from);
    let pairs = batch * (tokens * context + tokens * (tokens + 1.0) / 2.0);
    Sample {
        batch: chunk.point.batch,
        context: chunk.point.context,
        rows: batch * tokens,
        entries: pairs.max(tile_pairs * (context + tokens)),
        time_ms: chunk.times.time_ms,
        scale_ms: chunk.times.time_ms,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measurements::Point;

    fn chunks(cost: PrefillCost) -> Vec<Measurement> {
        let chunk = |batch: u32, context: u32, tokens: u32| {
            let time_ms = cost.time_ms((0..batch).map(|_| (context, tokens)));
            Measurement::once(Point::prefill(batch, context, tokens), time_ms)
        };
        let sizes = [(1, 0), (1, 1024), (1, 4096), (8, 0), (8, 1024), (64, 0)];
        sizes.into_iter().flat_map(|(batch, context)| [16, 64, 256, 1024].map(|n| chunk(batch, context, n))).collect()
    }

    #[test]
    fn tiles_are_found_where_there_are_some() {
        let line = PrefillCost { delta_ms: 5.0, gamma_us: 17.0, alpha_ns: 4.0, ..PrefillCost::default() };
        let tiled = PrefillCost { tile_pairs: 1448.0, ..line };
        let found = Prefill::new(&chunks(tiled), true).expect("a full grid").cost();
        assert!((found.tile_pairs / 1448.0 - 1.0).abs() < 0.1, "{found:?}");
        assert!((found.gamma_us / 17.0 - 1.0).abs() < 0.01, "{found:?}");
        let found = Prefill::new(&chunks(line), true).expect("a full grid").cost();
        assert_eq!(found.tile_pairs, 0.0, "{found:?}");
        assert_eq!(Prefill::new(&chunks(tiled), false).expect("a full grid").tile_pairs, 0.0);
    }
}
