//! Numbers of whatever width a file has.

use polars::prelude::*;

/// A column, or one list of it.
pub(super) enum Numbers {
    Signed(Int64Chunked),
    Unsigned(UInt64Chunked),
    Floats(Float64Chunked),
    /// A column of no type has no value.
    Absent,
}

impl Numbers {
    /// Of a type that [`super::types::Kind`] lets through.
    pub(super) fn of(series: &Series) -> PolarsResult<Self> {
        Ok(match series.dtype() {
            DataType::Null => Self::Absent,
            DataType::UInt64 => Self::Unsigned(series.u64()?.clone()),
            dtype if dtype.is_integer() => Self::Signed(series.cast(&DataType::Int64)?.i64()?.clone()),
            _ => Self::Floats(series.cast(&DataType::Float64)?.f64()?.clone()),
        })
    }

    /// How many values there are, missing ones among them; 0 of a column of no type.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Signed(numbers) => numbers.len(),
            Self::Unsigned(numbers) => numbers.len(),
            Self::Floats(numbers) => numbers.len(),
            Self::Absent => 0,
        }
    }

    /// A whole number, or what stands in its place; `None` if nothing does.
    pub(super) fn whole(&self, row: usize) -> Option<Result<i64, String>> {
        match self {
            Self::Signed(numbers) => numbers.get(row).map(Ok),
            Self::Unsigned(numbers) => {
                numbers.get(row).map(|number| i64::try_from(number).map_err(|_| number.to_string()))
            }
            Self::Floats(numbers) => {
                numbers.get(row).map(|number| crate::numbers::whole(number).ok_or_else(|| number.to_string()))
            }
            Self::Absent => None,
        }
    }

    /// Any number.
    pub(super) fn float(&self, row: usize) -> Option<f64> {
        match self {
            Self::Signed(numbers) => numbers.get(row).map(|number| number as f64),
            Self::Unsigned(numbers) => numbers.get(row).map(|number| number as f64),
            Self::Floats(numbers) => numbers.get(row),
            Self::Absent => None,
        }
    }
}
