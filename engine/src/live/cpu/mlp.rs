//! The gated MLP: down(silu(gate x) * up x).

use super::element::Element;
use super::exp::sigmoid;
use super::linear::Linear;
use super::matrix::{Matrix, ROWS_MAX};
use super::parallel::for_each_chunk;

/// Rows at a time: the wide activations of a long prefill are never held all at once.
const ROWS_AT_ONCE: usize = 8 * ROWS_MAX;

/// Both families' MLP. `gate_up` gives the gate's outputs, then the up projection's.
pub(super) fn mlp<E: Element>(x: &Matrix, gate_up: &Linear<E>, down: &Linear<E>) -> Matrix {
    let mut out = Matrix::zeros(x.rows(), x.width());
    for first in (0..x.rows()).step_by(ROWS_AT_ONCE) {
        let rows = first..(first + ROWS_AT_ONCE).min(x.rows());
        let wide = gate_up.apply(&Matrix::from_rows(x.width(), rows.clone().map(|row| x.row(row))));
        let y = down.apply(&gated::<E>(&wide));
        for (row, at) in rows.enumerate() {
            out.row_mut(at).copy_from_slice(y.row(row));
        }
    }
    out
}

fn gated<E: Element>(wide: &Matrix) -> Matrix {
    let ffn = wide.width() / 2;
    let mut out = Matrix::zeros(wide.rows(), ffn);
    let flops = 32 * out.data().len();
    for_each_chunk(
        out.data_mut(),
        ffn,
        flops,
        || (),
        |(), row, out| {
            let (gate, up) = wide.row(row).split_at(ffn);
            for ((out, gate), up) in out.iter_mut().zip(gate).zip(up) {
                *out = E::round(E::round(gate * sigmoid(*gate)) * up);
            }
        },
    );
    out
}
