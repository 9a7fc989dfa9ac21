//! A client's run as metrics and a log, as other runs have them.

use std::collections::BTreeMap;

use client::{Run, Seen};
use engine::live::TakenExits;
use engine::metrics::Recorder;
use engine::request::{Arrival, Request};

use super::facts::RunFacts;
use crate::live::Log;
use crate::run::plan::{Plan, Planned};

/// One run against a server.
pub(super) struct Measured {
    pub(super) recorder: Recorder,
    pub(super) log: Log,
    /// Those that the server told.
    pub(super) exits: TakenExits,
    pub(super) facts: RunFacts,
}

impl Measured {
    pub(super) fn of(run: &Run, plan: &Plan, planned: &Planned) -> Self {
        let mut recorder = Recorder::new(planned.config.max_num_seqs, plan.slo());
        let (mut log, mut depths) = (Log::default(), BTreeMap::new());
        for seen in &run.seen {
            let request = Request { arrival: seen.due, ..seen.arrival.request };
            recorder.arrived(&Arrival { request, ..seen.arrival }, seen.sent.max(seen.due), None);
        }
        let mut ended: Vec<&Seen> = run.seen.iter().collect();
        ended.sort_by_key(|seen| match &seen.result {
            Ok(answer) => answer.last,
            Err(failure) => failure.at,
        });
        for seen in ended {
            let id = seen.arrival.request.id;
            match (&seen.result, seen.record()) {
                (Ok(answer), Some(record)) => {
                    recorder.answered(&record, &answer.tokens, &answer.depths);
                    // A prediction needs an exit for every token that was asked for.
                    let mut told = answer.depths.clone();
                    told.resize(seen.arrival.output_tokens as usize, planned.config.r_max);
                    depths.insert(id, told);
                }
                (Err(failure), _) => recorder.unanswered(id, failure.tokens, failure.at),
                (Ok(_), None) => unreachable!("what was answered has a record"),
            }
        }
        log.requests.extend(recorder.take_finished());
        Self {
            facts: RunFacts::of(run, plan.workload.clients().is_some()),
            log,
            exits: TakenExits { depths },
            recorder,
        }
    }
}
