//! What early exits can gain at most: by linear layers (the paper's Section 5), and by all that a device must do
//! (`docs/bounds.md`).

use crate::architecture::Architecture;
use crate::metrics::Work;
use crate::profile::{DeviceSpec, Profile, StageCost};

/// Decode speed-up by FLOPs alone, Eq. 1: `(F_0 + r_max F_r) / (F_0 + d F_r)`, `d` the mean exit depth of decoded tokens.
pub fn s_dec(model: &Architecture, mean_exit_depth: f64) -> f64 {
    let (f_0, f_r) = (model.boundary_params() as f64, model.core_params() as f64);
    (f_0 + f64::from(model.r_max.0) * f_r) / (f_0 + mean_exit_depth * f_r)
}

/// End-to-end speed-up, Eq. 2: `1 / (a + (1 - a) / S_dec)`, `a` prefill's share of device time in the full-depth
/// continuous-batching run of the same requests.
pub fn s_e2e(s_dec: f64, prefill_share: f64) -> f64 {
    1.0 / (prefill_share + (1.0 - prefill_share) / s_dec)
}

/// Seconds that `device` needs for `work` at least, in any schedule of at most `max_num_seqs` rows a step and
/// `max_num_batched_tokens` prompt tokens a prefill batch: S_roof is the baseline's time over it.
///
/// Each stage takes at least as long as its bytes (weights once a batch, KV once a reader) and at least as long as its FLOPs,
/// and stages run one after another. The derivation is in `docs/bounds.md`.
pub fn least_time_s(
    work: &Work,
    model: &Architecture,
    device: &DeviceSpec,
    (max_num_seqs, max_num_batched_tokens): (u32, u32),
) -> f64 {
    let roofline = Profile::roofline(device, model);
    // No batch has a sequence twice.
    let rows = u64::from(max_num_seqs).min(work.prompts).max(1);
    let decode_ms = |cost: &StageCost, tokens: u64, entries: u64| {
        let bytes_ms = tokens.div_ceil(rows) as f64 * cost.floor_ms + entries as f64 * cost.alpha_ns / 1e6;
        bytes_ms.max(tokens as f64 * cost.gamma_us / 1e3)
    };
    // Only a batch in which a prompt ends needs what is behind the loop, and at most every sequence's prompt ends in one.
    let (prefill, behind_ms) = (roofline.prefill, roofline.coda.floor_ms);
    let chunks = work.prompt_tokens.div_ceil(u64::from(max_num_batched_tokens));
    let weights_ms = chunks as f64 * (prefill.floor_ms - behind_ms) + work.prompts.div_ceil(rows) as f64 * behind_ms;
    let flops_ms =
        work.prompt_tokens as f64 * prefill.gamma_us / 1e3 + work.prompt_pairs as f64 * prefill.alpha_ns / 1e6;
    let stages_ms = [
        weights_ms.max(flops_ms),
        decode_ms(&roofline.prelude, work.decoded, work.entries),
        decode_ms(&roofline.core, work.loops, work.looped_entries),
        decode_ms(&roofline.coda, work.decoded, work.entries),
    ];
    stages_ms.iter().sum::<f64>() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fully_looped_model_is_close_to_the_ratio_of_depths() {
        let ouro = Architecture::builtin("ouro-1.4b").expect("built in");
        let bound = s_dec(&ouro, 2.0);
        assert!(bound < 2.0 && bound > 1.95, "{bound}");
        assert_eq!(s_dec(&ouro, 4.0), 1.0);
        assert_eq!(s_e2e(2.0, 1.0), 1.0);
        assert_eq!(s_e2e(2.0, 0.0), 2.0);
    }

    /// By hand: two requests of 3 prompt tokens, one decoded token each, at depths 2 and 3, on a device of 1 GB/s and 1 TFLOP/s.
    #[test]
    fn the_least_time_is_the_larger_of_bytes_and_flops_stage_by_stage() {
        let model = Architecture::builtin("tiny-huginn").expect("built in");
        let mut work = Work::default();
        for depth in [2, 3] {
            work.add_prompt(3, 0);
            work.add_token(crate::units::Depth(depth), 4);
        }
        let slow = DeviceSpec { name: "slow".into(), bandwidth_gb_per_s: 1.0, compute_tflops: 1.0 };
        let least = |device: &DeviceSpec, limits| least_time_s(&work, &model, device, limits);
        let (core, prelude) = (2.0 * model.core_params() as f64, 2.0 * model.prelude_params() as f64);
        let coda = 2.0 * model.boundary_params() as f64 - prelude;
        let layer_kv = model.layer_kv_bytes() as f64;
        // Five loops in three steps of two rows, or in five of one.
        let kv = 8.0 * 2.0 * layer_kv + 20.0 * model.core_kv_bytes() as f64;
        let two = (prelude + 8.0 * core + coda) + prelude + 3.0 * core + coda + kv;
        assert!((least(&slow, (2, 6)) * 1e9 / two - 1.0).abs() < 1e-12);
        assert!((least(&slow, (9, 6)) * 1e9 / two - 1.0).abs() < 1e-12, "there are two sequences");
        let one = 2.0 * (prelude + 8.0 * core + coda) + 2.0 * prelude + 5.0 * core + 2.0 * coda + kv;
        assert!((least(&slow, (1, 3)) * 1e9 / one - 1.0).abs() < 1e-12);
        // Of what is read in no time, the FLOPs are left: of the head only for decoded tokens.
        let fast = DeviceSpec { bandwidth_gb_per_s: f64::INFINITY, ..slow };
        let head = 2.0 * (model.vocab * model.hidden) as f64;
        let attention = 12.0 * (8.0 * 2.0 + 2.0) * 4.0 * (model.heads * model.head_dim) as f64;
        let flops = 6.0 * (prelude + 8.0 * core + coda - head) + attention + 2.0 * (prelude + coda) + 5.0 * core;
        assert!((least(&fast, (2, 6)) * 1e12 / flops - 1.0).abs() < 1e-12);
    }
}
