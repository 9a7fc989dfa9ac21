//! Weighted least squares in up to four coefficients, none of which may be negative.

use nalgebra::{Cholesky, Matrix4, Vector4};

/// Coefficients at most: a cost has delta, floor, gamma and alpha.
pub(crate) const WIDTH: usize = 4;

/// A column is collinear if the columns before it explain all but this share of it.
const COLLINEAR: f64 = 1e-9;

/// One equation, already divided by its standard deviation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Equation {
    /// What each coefficient is multiplied by.
    pub(crate) x: [f64; WIDTH],
    /// What the products should add up to.
    pub(crate) y: f64,
}

/// A least-squares solution.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Solution {
    /// The coefficients; zero where they are not free.
    pub(crate) coefficients: Vector4<f64>,
    /// Which were estimated: asked for, and not held at zero because they would be negative.
    pub(crate) free: [bool; WIDTH],
    /// The inverse of the normal matrix; zero where a coefficient is not free.
    pub(crate) inverse: Matrix4<f64>,
    /// The sum of squared residuals.
    pub(crate) squares: f64,
}

/// The least-squares solution in the wanted columns with no coefficient negative, or `None` if they are collinear.
///
/// With at most four columns every set of free ones can be tried, which is exact: the constrained optimum is the best of the
/// unconstrained ones that satisfy the constraint.
pub(crate) fn solve(equations: &[Equation], wanted: [bool; WIDTH]) -> Option<Solution> {
    let mut matrix = Matrix4::zeros();
    let mut moments = Vector4::zeros();
    for Equation { x, y } in equations {
        let x = Vector4::from(*x);
        matrix += x * x.transpose();
        moments += x * *y;
    }
    let all = solve_free(equations, &matrix, &moments, wanted)?;
    if is_non_negative(&all) {
        return Some(all);
    }
    let subsets = (0..1_u32 << WIDTH).map(|bits| std::array::from_fn(|column| bits & (1 << column) != 0));
    subsets
        .filter(|free: &[bool; WIDTH]| free.iter().zip(wanted).all(|(free, wanted)| wanted || !free))
        .filter_map(|free| solve_free(equations, &matrix, &moments, free))
        .filter(is_non_negative)
        .min_by(|a, b| a.squares.total_cmp(&b.squares))
}

fn is_non_negative(solution: &Solution) -> bool {
    solution.coefficients.iter().all(|&coefficient| coefficient >= 0.0)
}

/// Columns are scaled to unit length, so that milliseconds per launch and nanoseconds per entry share one condition number; a
/// column that is not free becomes a unit column with no moment, whose coefficient is zero.
fn solve_free(
    equations: &[Equation],
    matrix: &Matrix4<f64>,
    moments: &Vector4<f64>,
    free: [bool; WIDTH],
) -> Option<Solution> {
    let lengths: [f64; WIDTH] = std::array::from_fn(|column| matrix[(column, column)].sqrt());
    if (0..WIDTH).any(|column| free[column] && lengths[column] == 0.0) {
        return None;
    }
    let scale = Vector4::from_fn(|column, _| if free[column] { 1.0 / lengths[column] } else { 0.0 });
    let scaled = Matrix4::from_fn(|i, j| match (i == j, free[i]) {
        (true, false) => 1.0,
        _ => matrix[(i, j)] * scale[i] * scale[j],
    });
    let factor = Cholesky::new(scaled)?;
    if factor.l_dirty().diagonal().iter().any(|pivot| pivot * pivot < COLLINEAR) {
        return None;
    }
    let unscale = Matrix4::from_diagonal(&scale);
    let inverse = unscale * factor.inverse() * unscale;
    let coefficients = inverse * moments;
    let squares = equations.iter().map(|equation| (equation.y - Vector4::from(equation.x).dot(&coefficients)).powi(2));
    Some(Solution { coefficients, free, inverse, squares: squares.sum() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(points: &[(f64, f64)]) -> Option<Solution> {
        let equations: Vec<_> = points.iter().map(|&(x, y)| Equation { x: [1.0, x, 0.0, 0.0], y }).collect();
        solve(&equations, [true, true, false, false])
    }

    #[test]
    fn a_line_is_the_textbooks() {
        // Means 2 and 3; Sxx = 2, Sxy = 1.5: slope 0.75, intercept 1.5; one residual pattern (0.25, -0.5, 0.25).
        let solution = line(&[(1.0, 2.5), (2.0, 2.5), (3.0, 4.0)]).expect("two columns");
        let expected = [1.5, 0.75, 0.0, 0.0];
        assert!((solution.coefficients - Vector4::from(expected)).norm() < 1e-12, "{}", solution.coefficients);
        assert!((solution.squares - 0.375).abs() < 1e-12);
        // Var of the slope over sigma^2 is 1 / Sxx, of the intercept 1 / n + mean^2 / Sxx.
        assert!((solution.inverse[(1, 1)] - 0.5).abs() < 1e-12);
        assert!((solution.inverse[(0, 0)] - (1.0 / 3.0 + 2.0)).abs() < 1e-12);
    }

    #[test]
    fn a_negative_coefficient_is_held_at_zero_and_the_others_refitted() {
        let solution = line(&[(1.0, 1.0), (2.0, 3.0), (3.0, 5.0)]).expect("two columns");
        assert_eq!(solution.free, [false, true, false, false]);
        // Through the origin: sum xy / sum xx = 22 / 14.
        assert!((solution.coefficients[1] - 22.0 / 14.0).abs() < 1e-12);
        assert_eq!(solution.coefficients[0], 0.0);
    }

    #[test]
    fn collinear_columns_have_no_solution() {
        assert!(line(&[(2.0, 1.0), (2.0, 1.1), (2.0, 0.9)]).is_none());
    }
}
