//! To what a device without graphs pads a batch, inferred from its times.
//!
//! A GPU replays graphs of known batch sizes. A CPU runs what it is given, but its matrix products work on tiles of rows,
//! and with part of the last tile empty a row more costs nothing there. How much of a step that is depends on the model
//! and the context, so it is left to the data: the padding under which left-out points are predicted best.

use engine::profile::Buckets;

use crate::calibration::{Calibration, Setup};
use crate::error::CalibrateError;
use crate::measurements::Measurement;

/// Rows that the CPU's matrix products handle at once.
const TILE_ROWS: u32 = 8;

/// A padding, and the mean absolute relative error of left-out core steps under it.
pub type Ranked = (Buckets, f64);

/// No padding, at least a tile, and whole tiles, for batches up to `largest`; without those that a profile cannot hold.
pub fn candidates(largest: u32) -> Vec<Buckets> {
    let tiles = largest.div_ceil(TILE_ROWS).max(1);
    let at_least_a_tile: Vec<u32> = (TILE_ROWS..=tiles * TILE_ROWS).collect();
    let whole_tiles: Vec<u32> = (1..=tiles).map(|tile| tile * TILE_ROWS).collect();
    let lists = [at_least_a_tile, whole_tiles].into_iter().filter_map(|sizes| sizes.try_into().ok());
    [Buckets::Exact].into_iter().chain(lists.map(Buckets::List)).collect()
}

/// The candidates, the best first; of equal ones the earlier.
///
/// # Errors
/// As [`Calibration::new`], if no candidate has a fit.
pub fn rank(
    measurements: &[Measurement],
    setup: &Setup,
    candidates: impl IntoIterator<Item = Buckets>,
) -> Result<Vec<Ranked>, CalibrateError> {
    let mut ranked = Vec::new();
    let mut failure = Ok(());
    for buckets in candidates {
        let setup = Setup { buckets, resamples: 0, ..setup.clone() };
        match Calibration::new(measurements, &setup) {
            Ok(calibration) => ranked.push((setup.buckets, calibration.core.chosen().error_mean())),
            Err(error) => failure = failure.and(Err(error)),
        }
    }
    if ranked.is_empty() {
        failure?;
    }
    ranked.sort_by(|(_, a), (_, b)| a.total_cmp(b));
    Ok(ranked)
}

/// A padding in a few words.
pub fn name(buckets: &Buckets) -> String {
    match buckets {
        Buckets::Exact => "exact".into(),
        Buckets::PowersOfTwo => "powers of two".into(),
        Buckets::List(sizes) => match sizes[..] {
            [first, second, .., last] if (first + (second - first) * (sizes.len() as u32 - 1)) == last => {
                format!("{first} to {last} in steps of {}", second - first)
            }
            _ => format!("{sizes:?}"),
        },
    }
}
