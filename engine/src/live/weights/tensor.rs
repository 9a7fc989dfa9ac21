//! One weight tensor: bf16, f16 or f32, owned or inside a memory-mapped file.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use half::{bf16, f16};
use memmap2::Mmap;
use rayon::prelude::*;

/// How a tensor's numbers are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dtype {
    /// The upper half of an f32.
    Bf16,
    /// IEEE half precision.
    F16,
    /// IEEE single precision.
    F32,
}

impl Dtype {
    /// Bytes of one number.
    pub fn bytes(self) -> usize {
        match self {
            Self::Bf16 | Self::F16 => 2,
            Self::F32 => 4,
        }
    }
}

/// A weight tensor, row-major.
#[derive(Clone, Debug)]
pub struct Tensor {
    shape: Vec<usize>,
    data: Data,
}

#[derive(Clone, Debug)]
enum Data {
    Bf16(Arc<Vec<bf16>>),
    F32(Arc<Vec<f32>>),
    Mapped { map: Arc<Mmap>, range: Range<usize>, dtype: Dtype },
}

impl Tensor {
    /// A bf16 tensor. Panics if `values` does not fill `shape`.
    pub fn from_bf16(shape: &[usize], values: Vec<bf16>) -> Self {
        assert_eq!(shape.iter().product::<usize>(), values.len(), "values must fill the shape {shape:?}");
        Self { shape: shape.to_vec(), data: Data::Bf16(Arc::new(values)) }
    }

    /// An f32 tensor. Panics if `values` does not fill `shape`.
    pub fn from_f32(shape: &[usize], values: Vec<f32>) -> Self {
        assert_eq!(shape.iter().product::<usize>(), values.len(), "values must fill the shape {shape:?}");
        Self { shape: shape.to_vec(), data: Data::F32(Arc::new(values)) }
    }

    /// A tensor inside a mapped file. Panics if the range has another length than the shape.
    pub(super) fn mapped(shape: &[usize], dtype: Dtype, map: Arc<Mmap>, range: Range<usize>) -> Self {
        assert_eq!(shape.iter().product::<usize>() * dtype.bytes(), range.len(), "the range must fit {shape:?}");
        Self { shape: shape.to_vec(), data: Data::Mapped { map, range, dtype } }
    }

    /// Its dimensions, outermost first.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// How its numbers are stored.
    pub fn dtype(&self) -> Dtype {
        match &self.data {
            Data::Bf16(_) => Dtype::Bf16,
            Data::F32(_) => Dtype::F32,
            Data::Mapped { dtype, .. } => *dtype,
        }
    }

    /// The little-endian bytes, as a device upload or a file wants them.
    pub fn bytes(&self) -> &[u8] {
        match &self.data {
            Data::Bf16(values) => bytemuck::cast_slice(values),
            Data::F32(values) => bytemuck::cast_slice(values),
            Data::Mapped { map, range, .. } => &map[range.clone()],
        }
    }

    /// The numbers rounded to bf16; borrowed where they are bf16 already.
    pub fn to_bf16(&self) -> Cow<'_, [bf16]> {
        match self.dtype() {
            Dtype::Bf16 => cast(self.bytes()),
            Dtype::F16 => cast::<f16>(self.bytes()).iter().map(|x| bf16::from_f32(x.to_f32())).collect(),
            Dtype::F32 => cast::<f32>(self.bytes()).iter().map(|&x| bf16::from_f32(x)).collect(),
        }
    }

    /// The numbers as f32; borrowed where they are f32 already.
    pub fn to_f32(&self) -> Cow<'_, [f32]> {
        match self.dtype() {
            Dtype::F32 => cast(self.bytes()),
            Dtype::Bf16 => cast::<bf16>(self.bytes()).iter().map(|x| x.to_f32()).collect(),
            Dtype::F16 => cast::<f16>(self.bytes()).iter().map(|x| x.to_f32()).collect(),
        }
    }

    /// The first number that is infinite or none, by its index in storage.
    pub fn first_not_finite(&self) -> Option<usize> {
        // An exponent of ones.
        let narrow = |mask: u16| cast::<u16>(self.bytes()).par_iter().position_first(|bits| bits & mask == mask);
        match self.dtype() {
            Dtype::Bf16 => narrow(0x7f80),
            Dtype::F16 => narrow(0x7c00),
            Dtype::F32 => cast::<f32>(self.bytes()).par_iter().position_first(|x| !x.is_finite()),
        }
    }

    /// Row `row` of a matrix as f32: an embedding lookup without widening the table.
    pub fn row(&self, row: usize) -> Vec<f32> {
        let row_bytes = self.shape[1..].iter().product::<usize>() * self.dtype().bytes();
        let bytes = &self.bytes()[row * row_bytes..][..row_bytes];
        match self.dtype() {
            Dtype::F32 => cast(bytes).into_owned(),
            Dtype::Bf16 => cast::<bf16>(bytes).iter().map(|x| x.to_f32()).collect(),
            Dtype::F16 => cast::<f16>(bytes).iter().map(|x| x.to_f32()).collect(),
        }
    }
}

/// Reads numbers out of bytes; copies where a file does not align them.
fn cast<T: bytemuck::Pod>(bytes: &[u8]) -> Cow<'_, [T]> {
    match bytemuck::try_cast_slice(bytes) {
        Ok(values) => Cow::Borrowed(values),
        Err(_) => Cow::Owned(bytemuck::pod_collect_to_vec(bytes)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_and_conversions_agree() {
        let tensor = Tensor::from_f32(&[2, 3], vec![1.0, 2.0, 3.0, 4.0, 5.5, -6.0]);
        assert_eq!(tensor.row(1), [4.0, 5.5, -6.0]);
        let narrow = Tensor::from_bf16(&[2, 3], tensor.to_bf16().into_owned());
        assert_eq!(narrow.to_f32(), tensor.to_f32());
        assert_eq!((narrow.row(0), narrow.bytes().len()), (vec![1.0, 2.0, 3.0], 12));
    }
}
