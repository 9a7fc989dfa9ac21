//! A sweep's report: one table over all points, a plot and a page.

mod page;
mod plot;
mod scalar;
mod table;
mod write;

use std::collections::BTreeMap;

pub use scalar::Scalar;
pub use write::{sweep_text, write_sweep};

use crate::above::{ABOVE_S_E2E, is_above};
use crate::format::{number, ratio};
use crate::measures::Measures;

/// What a sweep gave.
#[derive(Clone, Debug)]
pub struct Sweep {
    /// The scenario's name.
    pub title: String,
    /// What a reader must know to repeat it, as name and value.
    pub facts: Vec<(String, String)>,
    /// What a reader must know to judge it.
    pub notes: Vec<String>,
    /// The scenario, with its sweep.
    pub scenario_yaml: String,
    /// Requests arrive over time at some point.
    pub online: bool,
    /// The swept fields, as dotted paths.
    pub fields: Vec<String>,
    /// A row per point and scheduler, in the order of the points.
    pub rows: Vec<SweepRow>,
}

/// One scheduler at one point.
#[derive(Clone, Debug)]
pub struct SweepRow {
    /// The point's number, from 0.
    pub point: usize,
    /// The swept fields' values there.
    pub values: Vec<Scalar>,
    /// The scheduler's place in the comparison, the same at every point.
    pub entry: usize,
    /// Its name at this point.
    pub scheduler: String,
    /// What each seed gave.
    pub repeats: Vec<Measures>,
}

impl SweepRow {
    /// The mean over seeds of a figure.
    fn mean(&self, figure: impl Fn(&Measures) -> Option<f64>) -> Option<f64> {
        let values: Option<Vec<f64>> = self.repeats.iter().map(figure).collect();
        values.map(|values| values.iter().sum::<f64>() / values.len().max(1) as f64)
    }
}

impl Sweep {
    /// A name for each scheduler that holds at all points: its own, or without what the sweep changes in it.
    fn schedulers(&self) -> BTreeMap<usize, String> {
        let mut names: BTreeMap<usize, &str> = BTreeMap::new();
        let mut same: BTreeMap<usize, bool> = BTreeMap::new();
        for SweepRow { entry, scheduler, .. } in &self.rows {
            let name = names.entry(*entry).or_insert(scheduler);
            let shared = name.bytes().zip(scheduler.bytes()).take_while(|(a, b)| a == b).count();
            *same.entry(*entry).or_insert(true) &= *name == scheduler;
            // Bytes agree up to here in both, so a character ends here or was cut in both.
            *name = (0..=shared).rev().find_map(|end| name.get(..end)).unwrap_or_default();
        }
        let label = |(entry, name): (usize, &str)| {
            let whole = if same[&entry] { name } else { name.rsplit_once(' ').map_or("", |(whole, _)| whole) };
            (entry, if whole.is_empty() { format!("scheduler {}", entry + 1) } else { whole.to_owned() })
        };
        names.into_iter().map(label).collect()
    }

    /// `max_num_seqs = 8, mode = refill`: the values of some of the fields, by their short names.
    fn describe(&self, values: &[Scalar], shown: impl Fn(usize) -> bool) -> String {
        let fields = self.fields.iter().zip(values).enumerate().filter(|(index, _)| shown(*index));
        let parts: Vec<_> = fields.map(|(_, (field, value))| format!("{} = {value}", self.short_name(field))).collect();
        parts.join(", ")
    }

    /// A field's last part, if that says enough and no other field ends alike.
    fn short_name<'a>(&self, field: &'a str) -> &'a str {
        let last = field.rsplit('.').next();
        let alike = self.fields.iter().filter(|other| other.rsplit('.').next() == last).count();
        last.filter(|name| alike == 1 && *name != "name").unwrap_or(field)
    }

    /// Where each scheduler did best, one sentence a line, and what must be said of the bounds.
    fn headline(&self) -> Vec<String> {
        let best = |(entry, name): (usize, String)| {
            let rows = self.rows.iter().filter(|row| row.entry == entry);
            let goodput = self.rows.iter().all(|row| row.mean(|m| m.goodput_requests_per_s).is_some());
            let (what, unit, figure): (_, _, fn(&Measures) -> Option<f64>) = if goodput && self.online {
                ("goodput", "requests/s", |measures| measures.goodput_requests_per_s)
            } else {
                ("throughput", "tokens/s", |measures| measures.throughput_tokens_per_s)
            };
            let (row, value) = rows.filter_map(|row| Some((row, row.mean(figure)?))).max_by(|a, b| {
                // The first of equals, so that the order of points decides and nothing else.
                a.1.total_cmp(&b.1).then(b.0.point.cmp(&a.0.point))
            })?;
            if value == 0.0 {
                return Some(format!("{name}: no {what} at any point."));
            }
            let speedup = row.mean(|measures| measures.speedup);
            let speedup = speedup.map_or_else(String::new, |value| format!(" ({}× full depth there)", ratio(value)));
            let place = self.describe(&row.values, |_| true);
            Some(format!("{name}: highest {what} {} {unit}{speedup} at {place}.", number(value)))
        };
        let above = self.rows.iter().filter_map(|row| row.mean(|m| m.realised_share)).any(is_above);
        self.schedulers().into_iter().filter_map(best).chain(above.then(|| ABOVE_S_E2E.into())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn sweep(fields: &[&str], rows: &[(&[Scalar], &str, f64)]) -> Sweep {
        let row = |(point, (values, scheduler, throughput)): (usize, &(&[Scalar], &str, f64))| SweepRow {
            point,
            values: values.to_vec(),
            entry: 0,
            scheduler: (*scheduler).into(),
            repeats: vec![Measures { throughput_tokens_per_s: Some(*throughput), ..Measures::default() }],
        };
        Sweep {
            title: "sweep".into(),
            facts: Vec::new(),
            notes: Vec::new(),
            scenario_yaml: String::new(),
            online: false,
            fields: fields.iter().map(|field| (*field).into()).collect(),
            rows: rows.iter().enumerate().map(row).collect(),
        }
    }

    #[test]
    fn a_scheduler_is_called_by_what_the_sweep_leaves_alone() {
        let name = |names: &[&str]| {
            let rows: Vec<(&[Scalar], &str, f64)> = names.iter().map(|name| (&[][..], *name, 1.0)).collect();
            sweep(&[], &rows).schedulers()[&0].clone()
        };
        assert_eq!(name(&["refill K=1", "refill K=1"]), "refill K=1");
        assert_eq!(name(&["refill K=1", "refill K=16"]), "refill");
        assert_eq!(name(&["refill K=1", "no refill"]), "scheduler 1");
    }

    #[test]
    fn a_share_above_one_is_explained() {
        let said = |share| {
            let mut sweep = sweep(&[], &[(&[], "a", 10.0)]);
            sweep.rows[0].repeats[0].realised_share = Some(share);
            sweep.headline().contains(&ABOVE_S_E2E.to_owned())
        };
        assert!(said(1.008) && !said(1.0));
    }

    #[test]
    fn the_headline_names_the_best_point() {
        let at = |w: u32| [Scalar::from(w)];
        let (low, high) = (at(8), at(64));
        let sweep = sweep(&["scheduler.max_num_seqs"], &[(&low, "a", 10.0), (&high, "a", 30.0)]);
        assert_eq!(sweep.headline(), ["a: highest throughput 30.00 tokens/s at max_num_seqs = 64."]);
    }

    #[test]
    fn where_nothing_was_served_no_point_is_the_best() {
        let (low, high) = ([Scalar::from(8)], [Scalar::from(64)]);
        let sweep = sweep(&["kv.blocks"], &[(&low, "a", 0.0), (&high, "a", 0.0)]);
        assert_eq!(sweep.headline(), ["a: no throughput at any point."]);
    }
}
