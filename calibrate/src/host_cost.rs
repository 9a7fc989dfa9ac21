//! What is not the device's: the event loop's work per batch, and the way to host memory.

use engine::profile::HostCost;

use crate::cost::{Form, Sample, Shape, fit, significant};
use crate::measurements::{Measurement, Point, Timed, Times};

/// Times below this are as good as none: what a clock needs to be read.
const RESOLUTION_MS: f64 = 1e-4;

/// Building, launching and reading, each a constant and a part in proportion to the batch's rows; `None` if none was timed.
///
/// A profile has one term per row, for all three.
pub(crate) fn host_cost(measurements: &[Measurement]) -> Option<HostCost> {
    let [build, launch, read] = [Timed::Build, Timed::Launch, Timed::Read].map(|part| per_batch(measurements, part));
    let [build, launch, read] = [build?, launch?, read?];
    Some(HostCost {
        build_us: significant(build.0),
        build_row_us: significant(build.1 + launch.1 + read.1),
        launch_us: significant(launch.0),
        read_us: significant(read.0),
    })
}

/// (us per batch, us per row).
fn per_batch(measurements: &[Measurement], part: Timed) -> Option<(f64, f64)> {
    let of_part = measurements.iter().filter(|measurement| measurement.point.timed == part);
    let samples: Vec<Sample> = of_part
        .map(|&Measurement { point: Point { batch, .. }, times: Times { time_ms, .. }, .. }| Sample {
            batch,
            context: 0,
            rows: batch.into(),
            entries: 0.0,
            time_ms,
            scale_ms: time_ms.max(RESOLUTION_MS),
        })
        .collect();
    let mean_ms = samples.iter().map(|sample| sample.time_ms).sum::<f64>() / samples.len() as f64;
    // Two batch sizes leave nothing to judge a slope by.
    let line = fit(&samples, Shape { form: Form::Linear, reads_kv: false });
    let line = line.map(|fit| (fit.coefficients[0] * 1e3, fit.coefficients[2]));
    (!samples.is_empty()).then(|| line.unwrap_or((mean_ms * 1e3, 0.0)))
}

/// Bytes over time, of all transfers together: the simulator knows no cost per transfer.
pub(crate) fn offload_gb_per_s(measurements: &[Measurement], bytes_per_token: u64) -> Option<f64> {
    let transfers = measurements.iter().filter(|measurement| measurement.point.timed == Timed::Offload);
    let (bytes, ms) = transfers.fold((0.0, 0.0), |(bytes, ms), transfer| {
        let tokens = f64::from(transfer.point.batch) * f64::from(transfer.point.context);
        (bytes + tokens * bytes_per_token as f64, ms + transfer.times.time_ms)
    });
    (ms > 0.0).then(|| significant(bytes / ms / 1e6))
}
