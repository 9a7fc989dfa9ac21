//! The points of a sweep: each a scenario of its own, checked before any of them is run.

use std::fmt;

use reports::Scalar;

use crate::parallel::try_map;
use crate::run::key::{self, FileHashes};
use crate::run::plan::{Plan, PlanError};
use crate::scenario::axes::Axes;
use crate::scenario::fields::Fields;
use crate::scenario::inputs::Inputs;
use crate::scenario::load::Loaded;

/// Changes when journals of older programs must not be read: figures of other requests or with other percentiles.
const FORMAT: u32 = 3;

/// Every point of a scenario's sweep.
#[derive(Debug)]
pub struct Points {
    axes: Axes,
    fields: Fields,
    keys: Vec<String>,
    inputs: Inputs,
}

/// A point that cannot be run.
#[derive(Debug)]
pub struct PointError {
    /// Which one, from 0.
    pub point: usize,
    /// The values there, as `field = value`.
    pub values: String,
    /// The swept field at fault and the place of its value in the list, if it is one.
    pub axis: Option<(String, usize)>,
    /// The scenario's field at fault, dotted.
    pub path: String,
    /// What is wrong.
    pub reason: String,
}

impl std::error::Error for PointError {}

impl fmt::Display for PointError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "point {} of the sweep ({}): {}: {}", self.point, self.values, self.path, self.reason)
    }
}

impl Points {
    /// Checks every point; `None` if the scenario has no sweep.
    ///
    /// # Errors
    /// The first point that is no scenario, or contradicts itself.
    pub fn new(loaded: &Loaded) -> Result<Option<Self>, PointError> {
        let Some(axes) = loaded.scenario.sweep.clone() else { return Ok(None) };
        let mut fields = loaded.fields.clone();
        fields.remove("sweep");
        let mut points = Self { axes, fields, keys: Vec::new(), inputs: Inputs::of(loaded) };
        let hashes = FileHashes::default();
        let checked = try_map(points.axes.points(), |index| {
            let plan = points.plan(index)?;
            let mut inputs = Inputs::default();
            inputs.add_scenario(&plan.scenario);
            Ok((key::of_comparison(FORMAT, &plan, &hashes), inputs))
        })?;
        for (key, inputs) in checked {
            points.keys.push(key);
            points.inputs.extend(&inputs);
        }
        Ok(Some(points))
    }

    /// What the scenario and every point read.
    pub fn inputs(&self) -> &Inputs {
        &self.inputs
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Never: an axis has a value.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The swept fields.
    pub fn axes(&self) -> &Axes {
        &self.axes
    }

    /// What a point's results depend on, in short.
    pub fn key(&self, index: usize) -> &str {
        &self.keys[index]
    }

    /// The swept fields' values at a point.
    pub fn values(&self, index: usize) -> Vec<Scalar> {
        self.axes.iter().zip(self.axes.at(index)).map(|(axis, at)| axis.values[at].clone()).collect()
    }

    /// A point, ready to run.
    ///
    /// # Errors
    /// It is no scenario, or contradicts itself.
    pub fn plan(&self, index: usize) -> Result<Plan, PointError> {
        let mut fields = self.fields.clone();
        for (axis, value) in self.axes.iter().zip(self.values(index)) {
            fields.set(&axis.field, value.into()).map_err(|reason| self.blame_axis(index, &axis.field, reason))?;
        }
        let scenario = fields.scenario().map_err(|reason| {
            let field = self.first_wrong_axis(index);
            self.blame_axis(index, &field, reason)
        })?;
        Plan::new(scenario).map_err(|error| self.blame(index, error))
    }

    /// The error of a point's plan.
    pub fn blame(&self, index: usize, error: PlanError) -> PointError {
        let PlanError { path, reason } = error;
        // `exits` is at fault where `exits.preset.name` is swept.
        let concerns =
            |field: &str| field == path || field.strip_prefix(&path).is_some_and(|rest| rest.starts_with('.'));
        let swept = self.axes.iter().find(|axis| concerns(&axis.field));
        let axis = swept.map(|axis| self.place(index, &axis.field));
        PointError { point: index, values: self.describe(index), axis, path, reason }
    }

    fn blame_axis(&self, index: usize, field: &str, reason: String) -> PointError {
        let axis = Some(self.place(index, field));
        PointError { point: index, values: self.describe(index), axis, path: field.into(), reason }
    }

    /// The swept field with whose value the fields stop being a scenario.
    fn first_wrong_axis(&self, index: usize) -> String {
        let mut fields = self.fields.clone();
        let mut last = "";
        for (axis, value) in self.axes.iter().zip(self.values(index)) {
            last = &axis.field;
            if fields.set(&axis.field, value.into()).is_err() || fields.scenario().is_err() {
                break;
            }
        }
        last.into()
    }

    fn place(&self, index: usize, field: &str) -> (String, usize) {
        let axes = self.axes.iter().zip(self.axes.at(index));
        let at = axes.into_iter().find(|(axis, _)| axis.field == field).map_or(0, |(_, at)| at);
        (field.into(), at)
    }

    fn describe(&self, index: usize) -> String {
        let values = self.axes.iter().zip(self.values(index));
        values.map(|(axis, value)| format!("{} = {value}", axis.field)).collect::<Vec<_>>().join(", ")
    }
}
