//! How many rows of a core batch are at which depth.

use std::fmt::Write;

use engine::batch::Batch;

/// Appends a core batch's rows by the loop that they run, like `r1:29 r2:1 r4:34`.
pub(crate) fn write_composition(batch: &Batch, out: &mut String) {
    let mut rows = [0_u32; 256];
    let mut deepest = 0;
    for row in &batch.rows {
        let depth = usize::from(row.depth.0);
        rows[depth] += 1;
        deepest = deepest.max(depth);
    }
    let mut separator = "";
    for (depth, &count) in rows[..=deepest].iter().enumerate().filter(|&(_, &count)| count > 0) {
        write!(out, "{separator}r{depth}:{count}").expect("a string takes any text");
        separator = " ";
    }
}
