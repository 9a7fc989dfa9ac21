//! From a table of measurements to a profile.

use std::collections::BTreeMap;

use engine::architecture::Architecture;
use engine::layout::Layout;
use engine::profile::{Buckets, Covariance, DeviceSpec, Fit, Graphs, HostCost, KvTile, Profile, Transfer};

use crate::bootstrap::{Bootstrap, resample};
use crate::boundary::{Boundary, reads_kv};
use crate::contexts::contexts;
use crate::cost::{COEFFICIENTS, Form, Sample, significant};
use crate::depth::{DepthFit, by_point};
use crate::error::CalibrateError;
use crate::host_cost::{host_cost, offload_gb_per_s};
use crate::measurements::{Measurement, Point, Timed, Times, medians};
use crate::overhead::StageOverhead;
use crate::per_graph::{LookupTable, PerGraph};
use crate::prefill::Prefill;
use crate::validation::{Judged, judge, judge_graphs};

/// Candidates for what a missing entry of a tile costs, beside nothing.
const TILE_SHARES: [f64; 4] = [0.25, 0.5, 0.75, 1.0];

/// What the measurements do not say by themselves.
#[derive(Clone, Debug, PartialEq)]
pub struct Setup {
    /// The model that was timed.
    pub model: Architecture,
    /// What ran it.
    pub device: DeviceSpec,
    /// To what it pads batches.
    pub buckets: Buckets,
    /// It runs recorded graphs of those sizes, each of which may have a line of its own.
    pub graphs: bool,
    /// KV entries that its attention reads at a time; 0 if one.
    pub kv_tile_tokens: u32,
    /// The KV layout, from which offloaded bytes are counted.
    pub layout: Layout,
    /// Where the terms come from that were not measured.
    pub base: Profile,
    /// Refits of the bootstrap.
    pub resamples: u32,
    /// The bootstrap's seed.
    pub seed: u64,
}

/// Every fit that a profile is made of.
#[derive(Clone, Debug, PartialEq)]
pub struct Calibration {
    /// `tau_0` and `tau_r` at each point.
    pub points: Vec<DepthFit>,
    /// How attention reads KV.
    pub kv_tile: KvTile,
    /// One core application.
    pub core: Judged,
    /// Intervals of the core's coefficients by resampling, if most resamplings have a fit.
    pub bootstrap: Option<Bootstrap>,
    /// Prelude and coda.
    pub boundary: Boundary,
    /// What a stage's own launch adds, if the staged core was timed.
    pub stage_overhead: Option<StageOverhead>,
    /// Prompt chunks, if any were timed.
    pub prefill: Option<Prefill>,
    /// The event loop's work per batch, if it was timed.
    pub host: Option<HostCost>,
    /// Bytes of KV moved per time, if offloading was timed.
    pub offload_gb_per_s: Option<f64>,
}

impl Calibration {
    /// Fits everything that the measurements cover; repeats of a point count as their median, and points that were always
    /// disturbed count if there is no fit without them.
    ///
    /// # Errors
    /// Measurements that cannot tell the coefficients apart, or not well enough to judge the fit.
    pub fn new(measurements: &[Measurement], setup: &Setup) -> Result<Self, CalibrateError> {
        Self::fit(&medians(measurements, true), setup).or_else(|_| Self::fit(&medians(measurements, false), setup))
    }

    fn fit(measurements: &[Measurement], setup: &Setup) -> Result<Self, CalibrateError> {
        let points = by_point(measurements)?;
        let (tile, core) = fit_core(&points, setup)?;
        let sample = |point: &DepthFit, time_ms, scale_ms| {
            decode_sample((&setup.buckets, tile), point.batch, point.context, time_ms, scale_ms)
        };
        let bootstrap = resample(&core.samples, core.chosen().fit.shape, setup.resamples, setup.seed);
        let stage_overhead = StageOverhead::new(measurements, &points)?;
        let intercepts: Vec<_> = points.iter().map(|point| sample(point, point.tau_0_ms, point.deepest_ms)).collect();
        let overhead_us = stage_overhead.map_or(setup.base.stage_overhead_us, |overhead| overhead.mean_us.max(0.0));
        let staged = staged_boundary(measurements, (setup, tile), overhead_us / 1e3)?;
        let boundary = Boundary::new(&setup.model, &intercepts, staged)?;
        let chunks: Vec<_> = of_stage(measurements, Timed::Prefill).copied().collect();
        let prefill = if chunks.is_empty() { None } else { Some(Prefill::new(&chunks, setup.graphs)?) };
        let host = host_cost(measurements);
        let offload_gb_per_s = offload_gb_per_s(measurements, setup.model.kv_bytes_per_token(setup.layout));
        Ok(Self { points, kv_tile: tile, core, bootstrap, boundary, stage_overhead, prefill, host, offload_gb_per_s })
    }

    /// The profile, with every term that was not measured from the setup's base.
    ///
    /// # Errors
    /// Costs that no simulation can use, such as a core that takes no time.
    pub fn profile(&self, setup: &Setup, name: &str, source: &str) -> Result<Profile, CalibrateError> {
        let base = &setup.base;
        let profile = Profile {
            name: name.into(),
            model: setup.model.name.clone(),
            device: setup.device.clone(),
            source: format!(
                "{source}; not measured but taken from \"{}\": {}",
                base.name,
                self.unmeasured().join(", ")
            ),
            core: self.core.chosen().fit.stage_cost(),
            prelude: self.boundary.prelude,
            coda: self.boundary.coda,
            graphs: self.graphs(),
            kv_tile: self.kv_tile,
            prefill: self.prefill.as_ref().map_or(base.prefill, Prefill::cost),
            stage_overhead_us: self
                .stage_overhead
                .map_or(base.stage_overhead_us, |overhead| significant(overhead.mean_us.max(0.0))),
            host: self.host.unwrap_or(base.host),
            buckets: setup.buckets,
            transfer: Transfer {
                offload_gb_per_s: self.offload_gb_per_s.unwrap_or(base.transfer.offload_gb_per_s),
                ..base.transfer
            },
            variants: BTreeMap::new(),
            fit: Some(quality(&self.core)),
        };
        profile.check().map_err(|source| CalibrateError::Profile { name: name.into(), source })?;
        Ok(profile)
    }

    /// The profile's terms that the measurements do not cover.
    pub fn unmeasured(&self) -> Vec<&'static str> {
        let terms = [
            (self.prefill.is_some(), "prefill"),
            (self.stage_overhead.is_some(), "stage overhead"),
            (self.host.is_some(), "host"),
            (self.offload_gb_per_s.is_some(), "offload"),
            (false, "plane copies"),
        ];
        terms.into_iter().filter(|(measured, _)| !measured).map(|(_, name)| name).collect()
    }

    /// The stages' tables by graph, where these are better.
    fn graphs(&self) -> Graphs {
        let times = |judged: Option<&Judged>| match judged.and_then(|judged| judged.per_graph.as_ref()) {
            Some(PerGraph { table: LookupTable::Graphs(graphs), .. }) => graphs.clone(),
            _ => Vec::new(),
        };
        let staged = self.boundary.staged.as_ref();
        let prefill = self.prefill.as_ref().and_then(|prefill| prefill.judged.per_graph.as_ref());
        Graphs {
            core: times(Some(&self.core)),
            prelude: times(staged.map(|staged| &staged.prelude)),
            coda: times(staged.map(|staged| &staged.coda)),
            prefill: match prefill.map(|fit| &fit.table) {
                Some(LookupTable::Prompts(prompts)) => prompts.clone(),
                _ => Vec::new(),
            },
        }
    }
}

/// How well a stage's fit describes what was measured, for a profile.
pub(crate) fn quality(judged: &Judged) -> Fit {
    let chosen = judged.chosen();
    let points = judged.samples.len() as u32;
    if let Some(per_graph) = &judged.per_graph {
        return Fit {
            points,
            // A table goes through every point that it is made of; what it says of others is in the errors.
            r_squared: 1.0,
            cross_validated_error: significant(per_graph.error_mean()),
            cross_validated_error_max: significant(per_graph.error_max()),
            rejected_form_error: Some(significant(judged.linear.error_mean())),
            form: "per_graph".into(),
            half_width: BTreeMap::new(),
            covariance: None,
        };
    }
    let widths = COEFFICIENTS.iter().enumerate();
    Fit {
        points,
        r_squared: significant(chosen.fit.r_squared),
        cross_validated_error: significant(chosen.error_mean()),
        cross_validated_error_max: significant(chosen.error_max()),
        rejected_form_error: judged.rejected().map(|rejected| significant(rejected.error_mean())),
        form: form_name(judged.form).into(),
        half_width: widths
            .filter_map(|(i, name)| Some(((*name).into(), significant(chosen.fit.half_width(i)?))))
            .collect(),
        covariance: Some(Covariance {
            degrees: chosen.fit.degrees as u32,
            matrix: chosen.fit.covariance.map(|row| row.map(significant)),
        }),
    }
}

/// A form's name in profiles and tables.
pub fn form_name(form: Form) -> &'static str {
    match form {
        Form::Linear => "linear",
        Form::Roofline => "roofline",
    }
}

fn of_stage(measurements: &[Measurement], timed: Timed) -> impl Iterator<Item = &Measurement> {
    measurements.iter().filter(move |measurement| measurement.point.timed == timed)
}

/// The fit of the core, under the share of a begun tile's cost with which left-out points are predicted best.
fn fit_core(points: &[DepthFit], setup: &Setup) -> Result<(KvTile, Judged), CalibrateError> {
    let tokens = setup.kv_tile_tokens;
    let tiles = TILE_SHARES.iter().filter(|_| tokens > 0).map(|&share| KvTile { tokens, share });
    let fit = |tile: KvTile| {
        let slopes = points.iter().map(|point| {
            // A slope that noise made too small must not weigh the more for it, so errors are relative to the step's share.
            let share_ms = point.deepest_ms / f64::from(point.deepest);
            decode_sample((&setup.buckets, tile), point.batch, point.context, point.tau_r_ms, share_ms)
        });
        let judge_decode = if setup.graphs { judge_graphs } else { judge };
        Ok((tile, judge_decode(Timed::Core, slopes.collect(), true)?))
    };
    let fits = [KvTile::default()].into_iter().chain(tiles).map(fit).collect::<Result<Vec<_>, CalibrateError>>()?;
    let error = |(_, core): &(KvTile, Judged)| core.left_out().into_iter().flatten().map(f64::abs).sum::<f64>();
    Ok(fits.into_iter().min_by(|a, b| error(a).total_cmp(&error(b))).expect("one without tiles at least"))
}

fn decode_sample((buckets, tile): (&Buckets, KvTile), batch: u32, context: u32, time_ms: f64, scale_ms: f64) -> Sample {
    let entries = tile.entries(contexts(batch, context)) as f64;
    Sample { batch, context, rows: buckets.pad(batch).into(), entries, time_ms, scale_ms }
}

/// The staged boundary without the launches' overhead, which a profile states by itself.
fn staged_boundary(
    measurements: &[Measurement],
    (setup, tile): (&Setup, KvTile),
    overhead_ms: f64,
) -> Result<Option<(Judged, Judged)>, CalibrateError> {
    let samples = |timed| {
        let staged = of_stage(measurements, timed).map(|&Measurement { point, times, .. }| {
            let (Point { batch, context, .. }, Times { time_ms, .. }) = (point, times);
            decode_sample((&setup.buckets, tile), batch, context, time_ms - overhead_ms, time_ms)
        });
        staged.collect::<Vec<_>>()
    };
    let (prelude, coda) = (samples(Timed::Prelude), samples(Timed::Coda));
    match (prelude.is_empty(), coda.is_empty()) {
        (true, true) => return Ok(None),
        (false, false) => (),
        (true, false) => return Err(CalibrateError::HalfBoundary { present: Timed::Coda, absent: Timed::Prelude }),
        (false, true) => return Err(CalibrateError::HalfBoundary { present: Timed::Prelude, absent: Timed::Coda }),
    }
    let reads_kv = reads_kv(&setup.model);
    let judge = if setup.graphs { judge_graphs } else { judge };
    Ok(Some((judge(Timed::Prelude, prelude, reads_kv)?, judge(Timed::Coda, coda, reads_kv)?)))
}
