//! What runs once per token: the prelude and the coda, and how `tau_0` divides between them.

use engine::architecture::Architecture;
use engine::profile::StageCost;

use crate::cost::{CostFit, Form, Sample, Shape, fit, significant};
use crate::error::CalibrateError;
use crate::measurements::Timed;
use crate::validation::Judged;

/// The costs of prelude and coda.
#[derive(Clone, Debug, PartialEq)]
pub struct Boundary {
    /// The prelude's.
    pub prelude: StageCost,
    /// The coda's.
    pub coda: StageCost,
    /// `tau_0` of the fused steps, fitted over the grid in the linear form.
    pub tau_0: CostFit,
    /// The fits of stages that were timed by themselves; without, `tau_0` is divided by parameters.
    pub staged: Option<Staged>,
}

/// Prelude and coda, timed by themselves.
#[derive(Clone, Debug, PartialEq)]
pub struct Staged {
    /// The prelude's fit.
    pub prelude: Judged,
    /// The coda's fit.
    pub coda: Judged,
    /// Mean over the grid of what the two take together minus `tau_0`: a check, 0 if staging changes nothing.
    pub excess_ms: f64,
}

/// Whether a model's prelude and coda read KV.
pub fn reads_kv(model: &Architecture) -> bool {
    model.prelude_layers + model.coda_layers > 0
}

impl Boundary {
    /// From the fused steps' intercepts (samples whose time is `tau_0`) and, where there are any, from staged fits.
    ///
    /// # Errors
    /// Intercepts whose batch sizes and contexts are collinear.
    pub fn new(
        model: &Architecture,
        intercepts: &[Sample],
        staged: Option<(Judged, Judged)>,
    ) -> Result<Self, CalibrateError> {
        let shape = Shape { form: Form::Linear, reads_kv: reads_kv(model) };
        let tau_0 = fit(intercepts, shape).ok_or(CalibrateError::Collinear { timed: Timed::Step })?;
        let Some((prelude, coda)) = staged else {
            let (prelude, coda) = by_parameters(model, &tau_0);
            return Ok(Self { prelude, coda, tau_0, staged: None });
        };
        let together = |sample: &Sample| prelude.time_ms(sample) + coda.time_ms(sample);
        let excess: f64 = intercepts.iter().map(|sample| together(sample) - sample.time_ms).sum();
        Ok(Self {
            prelude: prelude.chosen().fit.stage_cost(),
            coda: coda.chosen().fit.stage_cost(),
            tau_0,
            staged: Some(Staged { excess_ms: excess / intercepts.len() as f64, prelude, coda }),
        })
    }
}

/// Weights and matrix products divide by parameters, KV by layers. An embedding is a lookup: all of Ouro's `tau_0` is its
/// coda's.
fn by_parameters(model: &Architecture, tau_0: &CostFit) -> (StageCost, StageCost) {
    let weights = model.prelude_params() as f64 / model.boundary_params() as f64;
    let kv = model.prelude_layers as f64 / (model.prelude_layers + model.coda_layers).max(1) as f64;
    let [delta, _, gamma, alpha] = tau_0.coefficients;
    let part = |weights: f64, kv: f64| StageCost {
        delta_ms: significant(delta * weights),
        floor_ms: 0.0,
        gamma_us: significant(gamma * weights),
        alpha_ns: significant(alpha * kv),
    };
    (part(weights, kv), part(1.0 - weights, 1.0 - kv))
}
