//! A table of exit-depth probabilities, and its alias form for drawing in constant time.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use engine::units::Depth;

use crate::error::TracesError;
use crate::numbers::Probability;

/// How far the probabilities' sum may be from 1.
const SUM_TOLERANCE: f64 = 1e-6;

/// The probability of each exit depth: sums to 1, depths from 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "BTreeMap<Depth, Probability>", into = "BTreeMap<Depth, Probability>")]
pub struct DepthTable(BTreeMap<Depth, Probability>);

impl DepthTable {
    /// The depths that have a probability above zero, rising.
    pub fn depths(&self) -> impl Iterator<Item = Depth> {
        self.entries().map(|(depth, _)| depth)
    }

    /// Depths and probabilities, without those of probability zero.
    pub fn entries(&self) -> impl Iterator<Item = (Depth, f64)> {
        self.0.iter().map(|(depth, p)| (*depth, p.get())).filter(|(_, p)| *p > 0.0)
    }

    /// The mean depth in loops.
    pub fn mean_depth(&self) -> f64 {
        self.entries().map(|(depth, p)| f64::from(depth.0) * p).sum()
    }
}

impl TryFrom<BTreeMap<Depth, Probability>> for DepthTable {
    type Error = TracesError;

    fn try_from(table: BTreeMap<Depth, Probability>) -> Result<Self, TracesError> {
        if table.contains_key(&Depth(0)) {
            return Err(TracesError::TableDepthZero);
        }
        let sum = table.values().fold(0.0, |sum, p| sum + p.get());
        if (sum - 1.0).abs() > SUM_TOLERANCE {
            return Err(TracesError::TableSum { sum });
        }
        Ok(Self(table))
    }
}

impl From<DepthTable> for BTreeMap<Depth, Probability> {
    fn from(table: DepthTable) -> Self {
        table.0
    }
}

/// Walker's alias method: one look-up and one comparison a draw, whatever the number of depths.
#[derive(Clone, Debug)]
pub(crate) struct AliasTable {
    /// A power of two of cells, at least 2 and at most 256.
    cells: Box<[Cell]>,
    /// 64 - log2(cells).
    shift: u32,
}

#[derive(Clone, Copy, Debug)]
struct Cell {
    /// Draws below it take `depth`, the others `alias`; in units of 2^-32.
    threshold: u32,
    depth: Depth,
    alias: Depth,
}

impl AliasTable {
    /// Vose's construction. Probabilities are exact to 2^-32 of a cell.
    pub(crate) fn new(table: &DepthTable) -> Self {
        let entries: Vec<(Depth, f64)> = table.entries().collect();
        let sum: f64 = entries.iter().map(|(_, p)| p).sum();
        let count = entries.len().next_power_of_two().max(2);
        // What is left in each cell, in cells; the padding cells are empty and filled by the others.
        let mut left: Vec<f64> = entries.iter().map(|(_, p)| p / sum * count as f64).collect();
        left.resize(count, 0.0);
        let depth = |cell: usize| entries.get(cell).map_or(entries[0].0, |(depth, _)| *depth);
        let mut cells: Vec<Cell> =
            (0..count).map(|cell| Cell { threshold: u32::MAX, depth: depth(cell), alias: depth(cell) }).collect();
        let (mut poor, mut rich): (Vec<usize>, Vec<usize>) = (0..count).partition(|&cell| left[cell] < 1.0);
        while let (Some(cell), Some(donor)) = (poor.pop(), rich.last().copied()) {
            cells[cell].threshold = (left[cell] * 2f64.powi(32)).round() as u32;
            cells[cell].alias = depth(donor);
            left[donor] -= 1.0 - left[cell];
            if left[donor] < 1.0 {
                rich.pop();
                poor.push(donor);
            }
        }
        // Cells that remain are full up to rounding: both of their outcomes are their own depth.
        Self { cells: cells.into_boxed_slice(), shift: 64 - count.trailing_zeros() }
    }

    /// The depth of 64 random bits; uses the highest 8 for the cell and bits 24..56 for the comparison.
    #[inline]
    pub(crate) fn depth(&self, bits: u64) -> Depth {
        let cell = self.cells[(bits >> self.shift) as usize];
        if ((bits >> 24) as u32) < cell.threshold { cell.depth } else { cell.alias }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn table(entries: &[(u8, f64)]) -> Result<DepthTable, TracesError> {
        let entries =
            entries.iter().map(|&(depth, p)| (Depth(depth), Probability::try_from(p).expect("a probability")));
        entries.collect::<BTreeMap<_, _>>().try_into()
    }

    #[test]
    fn a_table_sums_to_one_and_counts_from_one() {
        let check =
            |entries: &[(u8, f64)], expect: &str| assert_eq!(table(entries).expect_err("no table").to_string(), expect);
        check(&[(2, 0.5), (3, 0.25)], "the probabilities of `depths` must sum to 1 (within 1e-6), they sum to 0.75");
        check(&[], "the probabilities of `depths` must sum to 1 (within 1e-6), they sum to 0");
        check(&[(0, 0.5), (3, 0.5)], "an exit depth counts loops from 1, `depths` has a 0");
        assert!(table(&[(2, 0.3), (3, 0.3), (4, 0.400_000_9)]).is_ok());
    }

    proptest! {
        #[test]
        fn an_alias_table_holds_exactly_the_probabilities(weights in prop::collection::vec(0u32..1000, 1..40)) {
            prop_assume!(weights.iter().any(|&weight| weight > 0));
            let sum: u32 = weights.iter().sum();
            let entries: Vec<(u8, f64)> =
                weights.iter().enumerate().map(|(i, &w)| (i as u8 + 1, f64::from(w) / f64::from(sum))).collect();
            let alias = AliasTable::new(&table(&entries).expect("a table"));
            let mut mass = [0.0; 256];
            for cell in &alias.cells {
                let own = f64::from(cell.threshold) / 2f64.powi(32);
                mass[usize::from(cell.depth.0)] += own / alias.cells.len() as f64;
                mass[usize::from(cell.alias.0)] += (1.0 - own) / alias.cells.len() as f64;
            }
            for (depth, p) in entries {
                prop_assert!((mass[usize::from(depth)] - p).abs() < 1e-9, "depth {depth}: {} for {p}", mass[usize::from(depth)]);
            }
        }
    }
}
