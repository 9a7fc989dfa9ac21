//! The one call into the gemm crate.

/// Outputs per panel of weights.
pub(super) const PANEL: usize = 64;

/// `out[row][output] = sum over k of x[row][k] * panel[k][output]`, for `rows` rows and 64 outputs.
///
/// Public so that calibration can time what this machine's matrix products reach at best.
pub fn multiply(x: &[f32], panel: &[f32], out: &mut [f32], rows: usize) {
    let inputs = panel.len() / PANEL;
    assert!(x.len() == rows * inputs && panel.len() == inputs * PANEL && out.len() == rows * PANEL);
    // gemm's matrices are column-major: its m are our outputs, its n our rows, so that both are read as they lie.
    let (m, n, k) = (PANEL, rows, inputs);
    #[expect(unsafe_code, reason = "gemm takes raw pointers and strides")]
    // SAFETY: element (i, j) of an operand is at i * rs + j * cs. The panel's largest is (m-1) + (k-1) * PANEL =
    // panel.len() - 1, x's (k-1) + (n-1) * inputs = x.len() - 1, out's (m-1) + (n-1) * PANEL = out.len() - 1, as
    // asserted above. `out` is exclusively borrowed and not read, since `read_dst` is false.
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            out.as_mut_ptr(),
            PANEL as isize,
            1,
            false,
            panel.as_ptr(),
            PANEL as isize,
            1,
            x.as_ptr(),
            inputs as isize,
            1,
            0.0,
            1.0,
            false,
            false,
            false,
            gemm::Parallelism::None,
        );
    }
}
