//! `sweep:` in a scenario: dotted field paths, each with a list of values.

use std::fmt;

use reports::Scalar;
use serde::de::{Deserializer, Error, MapAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};

/// Points at most: beyond this a sweep is a mistake in its axes.
pub const POINTS_MAX: usize = 100_000;

/// The swept fields, in the scenario's order; the last varies fastest.
#[derive(Clone, Debug, PartialEq)]
pub struct Axes(Vec<Axis>);

/// A field and its values.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// As `--set` names it, like `scheduler.max_num_seqs` or `compare.2.min_coda_batch`.
    pub field: String,
    /// At least one.
    pub values: Vec<Scalar>,
}

impl Axes {
    /// The axes.
    pub fn iter(&self) -> std::slice::Iter<'_, Axis> {
        self.0.iter()
    }

    /// How many points there are: every combination of values.
    pub fn points(&self) -> usize {
        self.0.iter().map(|axis| axis.values.len()).product()
    }

    /// Leaves the first and the last value of each axis.
    pub(crate) fn keep_ends(&mut self) {
        for Axis { values, .. } in &mut self.0 {
            if values.len() > 2 {
                values.drain(1..values.len() - 1);
            }
        }
    }

    /// Which value each axis has at a point.
    pub(crate) fn at(&self, mut point: usize) -> Vec<usize> {
        let mut chosen: Vec<usize> = self
            .0
            .iter()
            .rev()
            .map(|axis| {
                let index = point % axis.values.len();
                point /= axis.values.len();
                index
            })
            .collect();
        chosen.reverse();
        chosen
    }

    fn new(axes: Vec<Axis>) -> Result<Self, String> {
        let points = axes.iter().try_fold(1_usize, |points, axis| points.checked_mul(axis.values.len()));
        if axes.is_empty() {
            return Err("name at least one field to sweep, such as `scheduler.max_num_seqs: [16, 32, 64]`".into());
        }
        if points.is_none_or(|points| points > POINTS_MAX) {
            let lengths: Vec<_> = axes.iter().map(|axis| axis.values.len().to_string()).collect();
            return Err(format!("{} points are more than {POINTS_MAX}: sweep fewer values", lengths.join(" x ")));
        }
        Ok(Self(axes))
    }
}

impl Serialize for Axes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|axis| (&axis.field, &axis.values)))
    }
}

impl<'de> Deserialize<'de> for Axes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(AxesVisitor)
    }
}

/// A list with something in it, so that an empty one is reported at its place.
#[derive(Deserialize)]
#[serde(try_from = "Vec<Scalar>")]
struct Values(Vec<Scalar>);

impl TryFrom<Vec<Scalar>> for Values {
    type Error = &'static str;

    fn try_from(values: Vec<Scalar>) -> Result<Self, &'static str> {
        if values.is_empty() { Err("a swept field needs at least one value") } else { Ok(Self(values)) }
    }
}

struct AxesVisitor;

impl<'de> Visitor<'de> for AxesVisitor {
    type Value = Axes;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map from field paths to lists of values")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Axes, A::Error> {
        let mut axes: Vec<Axis> = Vec::new();
        while let Some((field, Values(values))) = map.next_entry::<String, _>()? {
            if axes.iter().any(|axis| axis.field == field) {
                return Err(A::Error::custom(format!("`{field}` is swept twice")));
            }
            let within = |inner: &str, outer: &str| inner.strip_prefix(outer).is_some_and(|rest| rest.starts_with('.'));
            if let Some(Axis { field: other, .. }) =
                axes.iter().find(|axis| within(&field, &axis.field) || within(&axis.field, &field))
            {
                let reason =
                    format!("`{field}` and `{other}` set the same field, so one of them changes nothing: keep one");
                return Err(A::Error::custom(reason));
            }
            if matches!(field.split('.').next(), Some("sweep" | "output" | "live")) {
                return Err(A::Error::custom(format!("`{field}` changes no result and cannot be swept")));
            }
            axes.push(Axis { field, values });
        }
        Axes::new(axes).map_err(A::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axes(yaml: &str) -> Result<Axes, String> {
        crate::scenario::load::parse(yaml).map_err(|error| error.to_string())
    }

    #[test]
    fn the_last_axis_varies_fastest_and_the_files_order_counts() {
        let axes = axes("b: [1, 2]\na: [x, y, z]").unwrap();
        assert_eq!(axes.points(), 6);
        assert_eq!((axes.at(0), axes.at(1), axes.at(5)), (vec![0, 0], vec![0, 1], vec![1, 2]));
        assert_eq!(axes.iter().map(|axis| axis.field.as_str()).collect::<Vec<_>>(), ["b", "a"]);
    }

    #[test]
    fn a_sweep_that_cannot_be_says_why() {
        let check = |yaml: &str, expected: &str| {
            let error = axes(yaml).unwrap_err();
            assert!(error.contains(expected), "{yaml}: {error}");
        };
        check("{}", "name at least one field");
        check("a: []", "at least one value");
        check("a: [[1]]", "must be a scalar");
        check("a: 1", "sequence");
        let thousand: Vec<_> = (0..1000).map(|value| value.to_string()).collect();
        let thousand = thousand.join(", ");
        check(&format!("a: [{thousand}]\nb: [{thousand}]"), "1000 x 1000 points are more than 100000");
        check("sweep.a: [1]", "changes no result");
        check("a: [1]\na.b: [2]", "`a.b` and `a` set the same field");
        check("a.b: [1]\na: [2]", "`a` and `a.b` set the same field");
        assert_eq!(axes("a.b: [1]\na.bc: [2]").map(|axes| axes.points()), Ok(1));
    }
}
