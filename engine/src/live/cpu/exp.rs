//! The exponential function, so that softmax and SiLU give the same bits on every machine and in every loop shape.
//!
//! The C library's `expf` differs between platforms and cannot be vectorised.

/// `e^x` within 2 ulp; saturates at the ends of f32's normal range instead of reaching zero or infinity.
#[inline]
pub(super) fn exp(x: f32) -> f32 {
    let x = x.clamp(-87.0, 88.0);
    // Adding 1.5 * 2^23 leaves the nearest integer in the low bits; taking it away again leaves it as a number.
    const ROUND: f32 = 12_582_912.0;
    let rounded = x * std::f32::consts::LOG2_E + ROUND;
    let n = rounded - ROUND;
    // ln 2 in two parts, of which the first times n is exact.
    let r = (x - n * 0.693_359_4) - n * -2.121_944_4e-4;
    let series = 1.0 / 5040.0;
    let series = series * r + 1.0 / 720.0;
    let series = series * r + 1.0 / 120.0;
    let series = series * r + 1.0 / 24.0;
    let series = series * r + 1.0 / 6.0;
    let series = series * r + 0.5;
    let series = series * r + 1.0;
    let series = series * r + 1.0;
    let exponent = rounded.to_bits().wrapping_sub(ROUND.to_bits()).wrapping_add(127);
    series * f32::from_bits(exponent << 23)
}

/// `1 / (1 + e^-x)`.
#[inline]
pub(super) fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_within_two_ulp() {
        for i in -870_000..880_000 {
            let x = i as f32 * 1e-4;
            let exact = f64::from(x).exp();
            let error = (f64::from(exp(x)) - exact).abs() / exact;
            assert!(error < 2.0 * f64::from(f32::EPSILON), "exp({x}) is off by {error:e}");
        }
        assert_eq!((exp(0.0), sigmoid(0.0)), (1.0, 0.5));
        assert!(exp(f32::NEG_INFINITY) < 1e-37 && exp(f32::INFINITY).is_finite());
    }
}
