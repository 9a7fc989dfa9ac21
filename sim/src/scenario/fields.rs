//! A scenario's fields as a tree, in which single ones are set by their dotted path.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::scenario::model::ModelChoice;
use crate::scenario::{ProfileChoice, Scenario, WeightsChoice, default_compare};

/// The tree, and what is done to every scenario that is read from it.
#[derive(Clone, Debug)]
pub struct Fields {
    tree: Value,
    /// Where relative paths are looked up if they are not in the current directory.
    beside: PathBuf,
    /// Shrink what is read, as `--quick` does.
    pub(crate) quick: bool,
}

impl Fields {
    /// The fields of a scenario file in the folder `beside`.
    pub(crate) fn new(tree: Value, beside: &Path) -> Self {
        Self { tree, beside: beside.into(), quick: false }
    }

    /// Puts `new` at a dotted path; maps that are missing on the way are made, lists are indexed from 0. The schedulers have
    /// the indices of the default comparison where the file has no list of them; a swept field's path is one key of `sweep`.
    ///
    /// # Errors
    /// A list on the way has no such entry.
    pub fn set(&mut self, path: &str, new: Value) -> Result<(), String> {
        let keys = self.keys(path);
        if let ["compare", _, ..] = keys[..]
            && let Value::Object(map) = &mut self.tree
        {
            let list = map.entry("compare").or_insert(Value::Null);
            if list.is_null() {
                *list = serde_json::to_value(default_compare()).map_err(|error| error.to_string())?;
            }
        }
        let mut at = &mut self.tree;
        for key in keys {
            if !at.is_object() && !at.is_array() {
                // `arrivals: offline` gives way to `arrivals: { poisson: .. }`.
                *at = Value::Object(Map::new());
            }
            at = match at {
                Value::Array(list) => {
                    let length = list.len();
                    let index =
                        key.parse::<usize>().map_err(|_| format!("`{key}` is not an index into a list of {length}"))?;
                    list.get_mut(index).ok_or_else(|| format!("the list has {length} entries, there is no {index}"))?
                }
                Value::Object(map) => map.entry(key).or_insert(Value::Null),
                _ => unreachable!("made a map above"),
            };
        }
        *at = new;
        Ok(())
    }

    /// The parts of a path. Behind `sweep` there is a field's path, and behind that perhaps an entry of its values.
    fn keys<'a>(&self, path: &'a str) -> Vec<&'a str> {
        let Some(field) = path.strip_prefix("sweep.") else { return path.split('.').collect() };
        let swept = |field: &str| self.tree.get("sweep").is_some_and(|axes| axes.get(field).is_some());
        match field.rsplit_once('.') {
            Some((axis, entry)) if swept(axis) && !swept(field) => vec!["sweep", axis, entry],
            _ => vec!["sweep", field],
        }
    }

    /// Takes a top-level field out.
    pub(crate) fn remove(&mut self, key: &str) {
        if let Value::Object(map) = &mut self.tree {
            map.remove(key);
        }
    }

    /// The scenario of these fields.
    ///
    /// # Errors
    /// They are none; the reason names the field.
    pub fn scenario(&self) -> Result<Scenario, String> {
        let scenario = serde_json::from_value(self.tree.clone()).map_err(|error| error.to_string())?;
        Ok(self.finished(scenario))
    }

    /// Finds a scenario's files, and shrinks it if that is asked for.
    pub(crate) fn finished(&self, mut scenario: Scenario) -> Scenario {
        let look_up = |file: &mut PathBuf| {
            if !file.exists() {
                *file = self.beside.join(&*file);
            }
        };
        if let Some(file) = &mut scenario.workload.file {
            look_up(file);
        }
        if let ProfileChoice::File(file) = &mut scenario.profile {
            look_up(file);
        }
        if let Some(WeightsChoice::File(file)) = &mut scenario.live.weights {
            look_up(file);
        }
        if let ModelChoice::Folder(folder) = &mut scenario.model {
            look_up(folder);
        }
        if self.quick {
            crate::scenario::quick::shrink(&mut scenario);
        }
        scenario
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::load::parse;

    fn check(before: &str, path: &str, new: &str, after: &str) {
        let mut fields = Fields::new(parse(before).unwrap(), Path::new("."));
        fields.set(path, parse(new).unwrap()).unwrap();
        assert_eq!(fields.tree, parse::<Value>(after).unwrap(), "{before} with {path}={new}");
    }

    #[test]
    fn paths_reach_every_scalar() {
        check("a: { b: 1 }", "a.b", "2", "a: { b: 2 }");
        check("a: [{ b: 1 }, { b: 1 }]", "a.1.b", "x", "a: [{ b: 1 }, { b: x }]");
        check("arrivals: offline", "arrivals.poisson.rate_per_s", "4", "arrivals: { poisson: { rate_per_s: 4 } }");
        check("a: 1", "workload.file", "lengths.csv", "{ a: 1, workload: { file: lengths.csv } }");
    }

    #[test]
    fn a_swept_field_is_one_key() {
        let before = "sweep: { a.b: [1, 2] }";
        check(before, "sweep.a.b", "[3]", "sweep: { a.b: [3] }");
        check(before, "sweep.a.b.1", "3", "sweep: { a.b: [1, 3] }");
        check(before, "sweep.compare.2.name", "[x]", "sweep: { a.b: [1, 2], compare.2.name: [x] }");
        check(before, "sweep", "null", "sweep: null");
        check("a: 1", "sweep.a.b", "[3]", "{ a: 1, sweep: { a.b: [3] } }");
    }

    #[test]
    fn schedulers_that_no_file_lists_are_the_default_ones() {
        let mut fields = Fields::new(parse("seed: 1").unwrap(), Path::new("."));
        fields.set("compare.2.min_coda_batch", 4.into()).unwrap();
        assert_eq!(fields.tree["compare"][2]["min_coda_batch"], 4);
        assert_eq!(fields.tree["compare"][2]["mode"], "refill");
        let said = fields.set("compare.3.mode", "refill".into()).unwrap_err();
        assert_eq!(said, "the list has 3 entries, there is no 3");
    }
}
