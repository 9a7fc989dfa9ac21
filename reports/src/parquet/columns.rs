//! Columns of a row group in the making.

use polars::prelude::{
    ChunkedArray, Column, Float64Type, IntoColumn, NewChunkedArray, PlSmallStr, PolarsNumericType,
    StringChunkedBuilder, UInt32Type, UInt64Type,
};

use super::ROW_GROUP_ROWS;

/// All columns of a table.
pub(super) trait Columns {
    fn new() -> Self;

    /// Takes the values out; the columns are empty afterwards.
    fn take(&mut self) -> Vec<Column>;
}

/// Declares a table: a struct with a field per column, in order, named as in the file.
macro_rules! columns {
    ($table:ident { $($column:ident: $kind:ty),* $(,)? }) => {
        struct $table { $($column: $kind),* }

        impl Columns for $table {
            fn new() -> Self {
                Self { $($column: <$kind>::new(stringify!($column))),* }
            }

            fn take(&mut self) -> Vec<Column> {
                vec![$(self.$column.take()),*]
            }
        }
    };
}
pub(super) use columns;

pub(super) type U32 = Numbers<UInt32Type>;
pub(super) type U64 = Numbers<UInt64Type>;
pub(super) type F64 = Numbers<Float64Type>;

/// A column of numbers.
pub(super) struct Numbers<T: PolarsNumericType> {
    name: &'static str,
    values: Vec<T::Native>,
}

impl<T: PolarsNumericType> Numbers<T> {
    pub(super) fn new(name: &'static str) -> Self {
        Self { name, values: Vec::new() }
    }

    pub(super) fn push(&mut self, value: T::Native) {
        self.values.push(value);
    }

    pub(super) fn take(&mut self) -> Column {
        let next = Vec::with_capacity(self.values.capacity());
        let values = std::mem::replace(&mut self.values, next);
        ChunkedArray::<T>::from_vec(PlSmallStr::from_static(self.name), values).into_column()
    }
}

/// A column of numbers, some missing.
pub(super) struct Optional {
    name: &'static str,
    values: Vec<Option<f64>>,
}

impl Optional {
    pub(super) fn new(name: &'static str) -> Self {
        Self { name, values: Vec::new() }
    }

    pub(super) fn push(&mut self, value: Option<f64>) {
        self.values.push(value);
    }

    pub(super) fn take(&mut self) -> Column {
        let name = PlSmallStr::from_static(self.name);
        ChunkedArray::<Float64Type>::from_iter_options(name, self.values.drain(..)).into_column()
    }
}

/// A column of text, some missing.
pub(super) struct Text {
    name: &'static str,
    values: StringChunkedBuilder,
}

impl Text {
    pub(super) fn new(name: &'static str) -> Self {
        Self { name, values: StringChunkedBuilder::new(PlSmallStr::from_static(name), ROW_GROUP_ROWS) }
    }

    pub(super) fn push(&mut self, text: Option<&str>) {
        self.values.append_option(text);
    }

    pub(super) fn take(&mut self) -> Column {
        std::mem::replace(self, Self::new(self.name)).values.finish().into_column()
    }
}
