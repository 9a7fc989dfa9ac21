//! What weights, KV and activations are stored as.

use half::bf16;

use crate::live::weights::tensor::Tensor;

/// A storage type. Arithmetic is f32 whatever the type; storing rounds.
pub trait Element: bytemuck::Pod + Send + Sync + private::Sealed {
    /// Rounds to the nearest, ties to even.
    fn narrow(x: f32) -> Self;

    /// Exact.
    fn widen(self) -> f32;

    /// A tensor's numbers in this type.
    fn convert(tensor: &Tensor) -> Vec<Self>;

    /// Numbers widened to f32, in `scratch` unless they are f32 already.
    fn widen_slice<'a>(values: &'a [Self], scratch: &'a mut Vec<f32>) -> &'a [f32];

    /// What is left of `x` after storing it.
    fn round(x: f32) -> f32 {
        Self::narrow(x).widen()
    }
}

mod private {
    /// Rounding points are written for these two types only.
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for half::bf16 {}
}

impl Element for f32 {
    fn narrow(x: f32) -> Self {
        x
    }

    fn widen(self) -> f32 {
        self
    }

    fn convert(tensor: &Tensor) -> Vec<Self> {
        tensor.to_f32().into_owned()
    }

    fn widen_slice<'a>(values: &'a [Self], _: &'a mut Vec<f32>) -> &'a [f32] {
        values
    }
}

impl Element for bf16 {
    /// Without half's test for NaN, so that the compiler can vectorise; a NaN stays one, since its top bits are set.
    #[inline]
    fn narrow(x: f32) -> Self {
        let bits = x.to_bits();
        let to_even = 0x7fff + ((bits >> 16) & 1);
        Self::from_bits((bits.wrapping_add(to_even) >> 16) as u16)
    }

    #[inline]
    fn widen(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }

    fn convert(tensor: &Tensor) -> Vec<Self> {
        tensor.to_bf16().into_owned()
    }

    fn widen_slice<'a>(values: &'a [Self], scratch: &'a mut Vec<f32>) -> &'a [f32] {
        scratch.clear();
        scratch.extend(values.iter().map(|x| x.widen()));
        scratch
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bf16_rounds_as_half_does() {
        let numbers = (0..2_000_000u32).map(|i| f32::from_bits(i.wrapping_mul(2_654_435_761)));
        for x in numbers.chain([0.0, -0.0, f32::INFINITY, f32::MAX, f32::MIN_POSITIVE]) {
            if !x.is_nan() {
                assert_eq!(<bf16 as Element>::narrow(x).to_bits(), bf16::from_f32(x).to_bits(), "{x}");
            }
        }
        assert!(<bf16 as Element>::round(f32::NAN).is_nan());
    }
}
