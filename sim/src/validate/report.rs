//! What the journal has, set against the predictions.

use std::collections::BTreeSet;

use reports::validation::protocol::{self as report, CapacityPair, ProtocolRun, Tested};
use reports::validation::{Load, Validation};

use super::jobs::{Job, of_run};
use super::journal::LiveRun;
use super::protocol::Protocol;
use super::runs::{Carries, PlannedRun, is_baseline};
use super::session::Session;
use crate::live::{self, Served};
use crate::run::facts;

impl Session<'_> {
    /// The report of everything that is measured; a run counts as often as all of its schedulers have been run.
    pub fn report(&self, protocol: &Protocol) -> report::Protocol {
        let runs: Vec<ProtocolRun> = (0..self.runs.len()).map(|run| self.run(run)).collect();
        let first = &self.runs[0].parts[0].plan;
        let mut facts = facts::facts(first);
        let entries =
            || (0..self.runs.len()).flat_map(|run| of_run(self.runs, run)).filter_map(|job| self.measured(job));
        let all =
            |value: fn(&LiveRun) -> &str| entries().map(value).collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>();
        facts.push(("KV blocks".into(), first.scenario.kv.blocks.0.to_string()));
        facts.push(("measured on".into(), all(|entry| &entry.device).join(", ")));
        facts.push(("measured by revision".into(), all(|entry| &entry.revision).join(", ")));
        report::Protocol {
            title: protocol.name(),
            facts,
            notes: facts::notes(first, &[]),
            yaml: protocol.text.clone(),
            capacities: self.capacities(&runs),
            runs,
        }
    }

    fn run(&self, index: usize) -> ProtocolRun {
        let run = &self.runs[index];
        ProtocolRun {
            name: run.entry.name.clone(),
            group: run.group().into(),
            tier: run.entry.tier.0,
            set: run.entry.set.clone(),
            validation: self.validation(index),
        }
    }

    fn validation(&self, index: usize) -> Option<Validation> {
        let run = &self.runs[index];
        let repeats = (0..run.entry.repeats.0).take_while(|&repeat| self.has_all(index, repeat)).count() as u32;
        let parts = run.parts.iter().enumerate().map(|(at, part)| {
            let job = |scheduler, repeat| Job { run: index, part: at, scheduler, repeat };
            let served = |scheduler: usize| -> Vec<Served> {
                (0..repeats).filter_map(|repeat| Some(self.measured(job(scheduler, repeat))?.served.clone())).collect()
            };
            let measured: Vec<Vec<Served>> = (0..part.plan.schedulers.len()).map(served).collect();
            let mut validation = live::validation(&part.plan, self.predicted.part(index, at), &measured);
            if let Some(load) = part.load {
                validation.schedulers[0].load = Some(self.judged(index, at, repeats, load));
            }
            validation
        });
        let first = self.measured(Job { run: index, part: 0, scheduler: 0, repeat: 0 }).filter(|_| repeats > 0)?;
        let all = parts.reduce(|mut all, part| {
            all.schedulers.extend(part.schedulers);
            all
        })?;
        Some(Validation {
            title: run.entry.name.clone(),
            device: first.device.clone(),
            exits: first.exits.clone(),
            ..all
        })
    }

    fn has_all(&self, run: usize, repeat: u32) -> bool {
        of_run(self.runs, run).filter(|job| job.repeat == repeat).all(|job| self.measured(job).is_some())
    }

    /// Whether an online part carried its load, on both sides.
    fn judged(&self, run: usize, part: usize, repeats: u32, load: Load) -> Load {
        let slo = self.runs[run].parts[part].plan.slo();
        let predicted = &self.predicted.part(run, part)[0].metrics;
        let measured = (0..repeats).map(|repeat| self.measured(Job { run, part, scheduler: 0, repeat })?.carried);
        let measured: Option<Vec<bool>> = measured.collect();
        Load {
            predicted_carried: slo.map(|slo| slo.carried(predicted)),
            measured_carried: measured.and_then(|runs| agreed(&runs)),
            ..load
        }
    }

    /// The capacity of every scheduler in every group, with the rates at which it was run.
    fn capacities(&self, runs: &[ProtocolRun]) -> Vec<CapacityPair> {
        let mut pairs: Vec<CapacityPair> = Vec::new();
        for (run, reported) in self.runs.iter().zip(runs) {
            for (at, part) in run.parts.iter().enumerate() {
                let name = &part.plan.schedulers[0].name;
                let Some(carries) = run.capacities.get(name) else { continue };
                let place = pairs.iter().position(|pair| pair.group == run.group() && pair.scheduler == *name);
                let place = place.unwrap_or_else(|| {
                    pairs.push(untested(run, at, carries));
                    pairs.len() - 1
                });
                let load = reported.validation.as_ref().and_then(|validation| validation.schedulers[at].load);
                pairs[place].tested.extend(load.and_then(|load| {
                    let (predicted, measured) = load.predicted_carried.zip(load.measured_carried)?;
                    Some(Tested { rate_per_s: load.rate_per_s, predicted, measured })
                }));
            }
        }
        for pair in &mut pairs {
            pair.tested.sort_by(|a, b| a.rate_per_s.total_cmp(&b.rate_per_s));
        }
        pairs.retain(|pair| !pair.tested.is_empty());
        pairs
    }
}

/// What all live runs say alike; `None` if they differ, which judges nothing.
fn agreed(runs: &[bool]) -> Option<bool> {
    let (first, rest) = runs.split_first()?;
    rest.iter().all(|other| other == first).then_some(*first)
}

fn untested(run: &PlannedRun, part: usize, carries: &Carries) -> CapacityPair {
    let plan = &run.parts[part].plan;
    CapacityPair {
        group: run.group().into(),
        scheduler: plan.schedulers[0].name.clone(),
        baseline: is_baseline(plan, 0),
        predicted: carries.capacity.clone(),
        floor: carries.floor.clone(),
        tested: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeats_that_disagree_about_a_load_say_nothing_of_it() {
        let check = |runs: &[bool], said| assert_eq!(agreed(runs), said, "{runs:?}");
        check(&[true, true], Some(true));
        check(&[false], Some(false));
        check(&[true, false], None);
        check(&[], None);
    }
}
