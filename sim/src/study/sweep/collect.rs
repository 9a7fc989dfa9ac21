//! From journals to the sweep's report.

use std::path::PathBuf;

use reports::{Sweep, SweepRow};

use super::points::Points;
use super::shard::Shard;
use super::{Journal, SweepError};
use crate::run::facts;
use crate::run::plan::Plan;
use crate::scenario::axes::Axis;
use crate::scenario::load::Loaded;

/// Missing points that an error names.
const NAMED: usize = 10;

/// The sweep's report, from the journals under `dirs`. The first may be new if there are others.
///
/// # Errors
/// A folder has no journals, points are missing, or a journal cannot be read.
pub fn collect(points: &Points, loaded: &Loaded, dirs: &[PathBuf]) -> Result<Sweep, SweepError> {
    for dir in if dirs.len() > 1 { &dirs[1..] } else { dirs } {
        let reason = match dir.is_dir() {
            true if Journal::folder(dir).is_dir() => continue,
            true => "there is no folder `points` in it, so no sweep was run into it",
            false => "there is no such folder",
        };
        return Err(SweepError::NoJournals { dir: dir.clone(), reason });
    }
    let known = Journal::read(dirs)?;
    let missing: Vec<usize> = (0..points.len()).filter(|&index| !known.has(points.key(index))).collect();
    if !missing.is_empty() {
        let mut some: Vec<_> = missing.iter().take(NAMED).map(usize::to_string).collect();
        some.extend((missing.len() > NAMED).then(|| "..".into()));
        return Err(SweepError::Missing { missing: missing.len(), count: points.len(), some: some.join(", ") });
    }
    if dirs.len() > 1 {
        known.warn_of_other_revisions(points, Shard::WHOLE);
    }
    let (first, last) = (points.plan(0)?, points.plan(points.len() - 1)?);
    let row = |(point, (entry, measured)): (usize, (usize, &super::point::Measured))| SweepRow {
        point,
        values: points.values(point),
        entry,
        scheduler: measured.name.clone(),
        repeats: measured.repeats.clone(),
    };
    let schedulers = |point: usize| known.schedulers(points.key(point)).unwrap_or_default().iter().enumerate();
    let rows = (0..points.len()).flat_map(|point| schedulers(point).map(move |measured| (point, measured))).map(row);
    Ok(Sweep {
        title: loaded.name(),
        facts: facts(points, &first, &last),
        notes: facts::notes(&first, &[]),
        scenario_yaml: serde_yaml::to_string(&loaded.scenario).expect("a scenario is YAML"),
        online: first.online() || last.online(),
        fields: points.axes().iter().map(|axis| axis.field.clone()).collect(),
        rows: rows.collect(),
    })
}

/// What is swept, and what holds at the first point and the last.
fn facts(points: &Points, first: &Plan, last: &Plan) -> Vec<(String, String)> {
    let axis = |axis: &Axis| {
        let values: Vec<_> = axis.values.iter().map(ToString::to_string).collect();
        (axis.field.clone(), values.join(", "))
    };
    let swept = points.axes().iter().map(axis);
    let last = facts::facts(last);
    let common = facts::facts(first).into_iter().filter(|fact| last.contains(fact));
    let seeds = first.scenario.repeats.0;
    let repeats = (seeds > 1).then(|| ("seeds at each point".into(), seeds.to_string()));
    [("points".into(), points.len().to_string())].into_iter().chain(swept).chain(common).chain(repeats).collect()
}
