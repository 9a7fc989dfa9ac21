//! Which Parquet types hold what a workload needs, and what the others are called.
//!
//! Types are judged by the file's schema, before polars meets the values: it ends the process at types that it was built without.

use polars::prelude::ArrowDataType;

/// What a column must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Whole numbers; floats will do if they are whole.
    Whole,
    /// Numbers of seconds.
    Seconds,
    /// Exit depths.
    Depths,
    /// What prompts begin with.
    Pieces,
    /// A run's or a scheduler's name, or number.
    Name,
}

impl Kind {
    /// As the end of "must hold ..".
    pub(super) fn must(self) -> &'static str {
        match self {
            Self::Whole => "integers, or floats that are whole",
            Self::Seconds => "seconds since the run's start, as floats or integers",
            Self::Depths => "text, or lists of integers",
            Self::Pieces => "text",
            Self::Name => "text or integers",
        }
    }

    /// Whether values of the type can be read as this. A column without any value has the type of nothing.
    pub(super) fn reads(self, found: &ArrowDataType) -> bool {
        match (self, found) {
            (_, ArrowDataType::Null) => true,
            (Self::Whole | Self::Seconds, found) => is_number(found),
            (Self::Depths, ArrowDataType::LargeList(item) | ArrowDataType::List(item)) => {
                is_number(item.dtype()) || *item.dtype() == ArrowDataType::Null
            }
            (Self::Depths | Self::Pieces, found) => is_text(found),
            (Self::Name, found) => is_text(found) || is_number(found),
        }
    }
}

fn is_text(found: &ArrowDataType) -> bool {
    matches!(found, ArrowDataType::Utf8 | ArrowDataType::LargeUtf8 | ArrowDataType::Utf8View)
}

fn is_number(found: &ArrowDataType) -> bool {
    use ArrowDataType as T;
    matches!(
        found,
        T::Int8
            | T::Int16
            | T::Int32
            | T::Int64
            | T::UInt8
            | T::UInt16
            | T::UInt32
            | T::UInt64
            | T::Float32
            | T::Float64
    )
}

/// A type as an error names it.
pub(super) fn name(found: &ArrowDataType) -> String {
    use ArrowDataType as T;
    match found {
        found if is_text(found) => "text".into(),
        T::Decimal(digits, scale) | T::Decimal256(digits, scale) => format!("decimal({digits}, {scale})"),
        T::Timestamp(..) => "timestamps".into(),
        T::Duration(_) => "durations".into(),
        T::Date32 | T::Date64 => "dates".into(),
        T::Time32(_) | T::Time64(_) => "times of day".into(),
        T::LargeList(item) | T::List(item) => format!("lists of {}", name(item.dtype())),
        T::FixedSizeList(item, length) => format!("lists of a fixed length ({length}) of {}", name(item.dtype())),
        T::Dictionary(_, values, _) => format!("categories (a dictionary of {})", name(values)),
        T::Struct(_) => "structs".into(),
        T::Binary | T::LargeBinary | T::BinaryView | T::FixedSizeBinary(_) => "bytes".into(),
        plain => format!("{plain:?}").to_lowercase(),
    }
}
