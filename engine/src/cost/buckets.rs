//! Batch sizes for which graphs were captured.

use std::fmt;
use std::ops::Deref;

use serde::{Deserialize, Serialize};

/// Batch sizes for which graphs were captured; a batch is padded to the next one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(clippy::large_enum_variant, reason = "made once a run; boxed, whoever knows a device could not be copied")]
pub enum Buckets {
    /// No padding.
    #[default]
    Exact,
    /// 1, 2, 4, 8, ..
    PowersOfTwo,
    /// An ascending list; larger batches are padded to a multiple of its last entry.
    List(BucketSizes),
}

/// Rising batch sizes, at most [`BucketSizes::MAX`] of them, in place: whoever knows a device can be copied.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<u32>", into = "Vec<u32>")]
pub struct BucketSizes {
    sizes: [u32; Self::MAX],
    count: usize,
}

impl Buckets {
    /// The padded batch size.
    pub fn pad(&self, rows: u32) -> u32 {
        match self {
            Self::Exact => rows,
            Self::PowersOfTwo => rows.next_power_of_two(),
            Self::List(sizes) => sizes.iter().copied().find(|&size| size >= rows).unwrap_or_else(|| {
                let last = sizes.last().copied().unwrap_or(1);
                rows.div_ceil(last) * last
            }),
        }
    }
}

impl BucketSizes {
    /// More graphs than a device has memory for.
    pub const MAX: usize = 96;
}

impl Deref for BucketSizes {
    type Target = [u32];

    fn deref(&self) -> &[u32] {
        &self.sizes[..self.count]
    }
}

impl TryFrom<Vec<u32>> for BucketSizes {
    type Error = String;

    fn try_from(list: Vec<u32>) -> Result<Self, String> {
        if list.is_empty() || list[0] == 0 || list.len() > Self::MAX || !list.is_sorted_by(|a, b| a < b) {
            return Err(format!("must be a rising list of at most {} batch sizes from 1, got {list:?}", Self::MAX));
        }
        let mut sizes = [0; Self::MAX];
        sizes[..list.len()].copy_from_slice(&list);
        Ok(Self { sizes, count: list.len() })
    }
}

impl From<BucketSizes> for Vec<u32> {
    fn from(sizes: BucketSizes) -> Self {
        sizes.to_vec()
    }
}

impl fmt::Debug for BucketSizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.deref().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_padded_to_the_next_bucket() {
        let list = Buckets::List(vec![1, 8, 24].try_into().unwrap());
        assert_eq!([1, 2, 8, 9, 25, 49].map(|rows| list.pad(rows)), [1, 8, 8, 24, 48, 72]);
        assert_eq!([1, 3, 64, 65].map(|rows| Buckets::PowersOfTwo.pad(rows)), [1, 4, 64, 128]);
    }
}
