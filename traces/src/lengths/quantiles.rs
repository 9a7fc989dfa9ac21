//! The embedded quantile tables that the generators invert.

/// The table: a comment with its sources, a header, and one line per quantile.
const TABLE: &str = include_str!("quantiles.csv");

/// Token quantiles of one column, interpolated linearly.
#[derive(Clone, Debug)]
pub struct Quantiles {
    /// (quantile, tokens), rising from quantile 0 to 1.
    knots: Vec<(f64, f64)>,
}

impl Quantiles {
    /// A column of the embedded table, its tokens times `factor`. Panics if the table has no such column.
    pub fn embedded(column: &str, factor: f64) -> Self {
        let mut lines = TABLE.lines().filter(|line| !line.starts_with('#')).map(|line| line.split(','));
        let mut header = lines.next().into_iter().flatten();
        let index = header.position(|name| name == column).expect("the embedded table has every workload's columns");
        let number = |field: Option<&str>| -> f64 {
            field.and_then(|field| field.parse().ok()).expect("the embedded table holds numbers")
        };
        let knots = lines.map(|line| (number(line.clone().next()), factor * number(line.clone().nth(index)))).collect();
        Self { knots }
    }

    /// The tokens at quantile `u` in 0..=1, not rounded.
    pub fn at(&self, u: f64) -> f64 {
        let above = self.knots.partition_point(|&(q, _)| q < u).clamp(1, self.knots.len() - 1);
        let ((q0, tokens0), (q1, tokens1)) = (self.knots[above - 1], self.knots[above]);
        tokens0 + (tokens1 - tokens0) * (u - q0) / (q1 - q0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_column_rises_from_quantile_zero_to_one() {
        let columns = TABLE.lines().find(|line| line.starts_with("q,")).expect("a header").split(',').skip(1);
        for column in columns {
            let knots = Quantiles::embedded(column, 1.0).knots;
            assert_eq!((knots[0].0, knots[knots.len() - 1].0), (0.0, 1.0), "{column}");
            assert!(knots.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1), "{column}");
        }
    }

    #[test]
    fn a_quantile_between_two_knots_is_interpolated() {
        let quantiles = Quantiles { knots: vec![(0.0, 4.0), (0.5, 10.0), (1.0, 110.0)] };
        let check = |u, expect: f64| assert!((quantiles.at(u) - expect).abs() < 1e-12, "{u}");
        check(0.0, 4.0);
        check(0.25, 7.0);
        check(0.5, 10.0);
        check(0.75, 60.0);
        check(1.0, 110.0);
    }
}
