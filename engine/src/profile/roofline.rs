//! The profile that a device's physical limits allow.

use std::collections::BTreeMap;

use super::{Buckets, DeviceSpec, Graphs, HostCost, KvTile, PrefillCost, Profile, StageCost, Transfer};
use crate::architecture::Architecture;

impl Profile {
    /// What the device's physical limits allow for a model, in bf16: weights streamed once per launch, or two FLOPs per
    /// parameter and row, whichever takes longer, plus the KV streamed. No overheads, no padding.
    pub fn roofline(device: &DeviceSpec, model: &Architecture) -> Self {
        let bytes_per_ms = device.bandwidth_gb_per_s * 1e6;
        let flops_per_us = device.compute_tflops * 1e6;
        let stage = |params: u64, kv_bytes: u64| StageCost {
            delta_ms: 0.0,
            floor_ms: 2.0 * params as f64 / bytes_per_ms,
            gamma_us: 2.0 * params as f64 / flops_per_us,
            alpha_ns: kv_bytes as f64 / device.bandwidth_gb_per_s,
        };
        let layer_kv = model.layer_kv_bytes();
        let core = stage(model.core_params(), model.core_kv_bytes());
        let prelude = stage(model.prelude_params(), model.prelude_layers * layer_kv);
        let coda = stage(model.boundary_params() - model.prelude_params(), model.coda_layers * layer_kv);
        let loops = f64::from(model.r_max.0);
        // Logits are needed only where a prompt ends: the LM head's compute is left out, its weights are streamed.
        let head = model.vocab * model.hidden;
        let per_token = 2.0 * (model.core_params() as f64 * loops + (model.boundary_params() - head) as f64);
        let layers = model.core_layers as f64 * loops + (model.prelude_layers + model.coda_layers) as f64;
        Self {
            name: format!("roofline of {} on {}", model.name, device.name),
            model: model.name.clone(),
            device: device.clone(),
            source: "computed: weights and KV over bandwidth, 2 FLOPs per parameter over throughput, no overheads"
                .into(),
            prefill: PrefillCost {
                delta_ms: 0.0,
                floor_ms: prelude.floor_ms + loops * core.floor_ms + coda.floor_ms,
                gamma_us: per_token / flops_per_us,
                // Scores and values: 2 FLOPs each per head dimension.
                alpha_ns: layers * 4.0 * (model.heads * model.head_dim) as f64 / flops_per_us * 1e3,
                tile_pairs: 0.0,
            },
            core,
            prelude,
            coda,
            graphs: Graphs::default(),
            kv_tile: KvTile::default(),
            stage_overhead_us: 0.0,
            host: HostCost::default(),
            buckets: Buckets::Exact,
            transfer: Transfer {
                plane_copy_gb_per_s: device.bandwidth_gb_per_s / 2.0,
                offload_gb_per_s: f64::INFINITY,
            },
            variants: BTreeMap::new(),
            fit: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_roofline_streams_the_weights_once_per_loop() {
        let device = DeviceSpec { name: "measured".into(), bandwidth_gb_per_s: 4290.0, compute_tflops: 989.0 };
        let floor_ms = |model: &str, rows: u32| {
            let model = Architecture::builtin(model).expect("built in");
            Profile::roofline(&device, &model).core.time_ms(rows, u64::from(rows) * 512)
        };
        // The floors measured for an H200 at this bandwidth, in ms per loop at context 512.
        for (model, rows, floor) in [
            ("ouro-1.4b", 1, 0.597),
            ("ouro-1.4b", 8, 0.761),
            ("ouro-1.4b", 64, 2.07),
            ("huginn-3.5b", 1, 0.772),
            ("huginn-3.5b", 8, 0.842),
            ("huginn-3.5b", 64, 1.41),
        ] {
            let computed = floor_ms(model, rows);
            assert!((computed / floor - 1.0).abs() < 0.01, "{model} at {rows} rows: {computed}, not {floor}");
        }
    }
}
