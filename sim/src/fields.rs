//! A scenario's fields as a tree, in which single ones are set by their dotted path.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::scenario::{ProfileChoice, Scenario, WeightsChoice};

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

    /// Puts `new` at a dotted path; maps that are missing on the way are made, lists are indexed from 0.
    ///
    /// # Errors
    /// A list on the way has no such entry.
    pub fn set(&mut self, path: &str, new: Value) -> Result<(), String> {
        let mut at = &mut self.tree;
        for key in path.split('.') {
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
        if let WeightsChoice::File(file) = &mut scenario.live.weights {
            look_up(file);
        }
        if self.quick {
            crate::quick::shrink(&mut scenario);
        }
        scenario
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::parse;

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
}
