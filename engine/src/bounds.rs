//! What early exits can gain at most (the paper's Section 5).

use crate::architecture::Architecture;

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
}
