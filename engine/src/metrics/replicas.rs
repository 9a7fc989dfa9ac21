//! Several engines behind a router, each told from the others.

use serde::{Deserialize, Serialize};

use crate::event_loop::Step;
use crate::scheduler::Queues;

/// What replicas did, in order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReplicaMetrics {
    /// Requests that were sent to each.
    pub requests: Vec<u64>,
    /// Time that each one's device ran batches / makespan.
    pub busy_share: Vec<f64>,
    /// The busiest device's time over the mean: 1 if all have as much to do.
    pub imbalance: f64,
}

/// Counts what replicas do.
#[derive(Clone, Debug)]
pub(super) struct Tally {
    requests: Vec<u64>,
    busy_s: Vec<f64>,
    /// As of each one's last step.
    queues: Vec<Queues>,
}

impl Tally {
    pub(super) fn new(count: usize) -> Self {
        Self { requests: vec![0; count], busy_s: vec![0.0; count], queues: vec![Queues::default(); count] }
    }

    pub(super) fn count(&self) -> usize {
        self.requests.len()
    }

    pub(super) fn sent(&mut self, replica: usize) {
        self.requests[replica] += 1;
    }

    /// Counts a step, and gives all replicas' queues behind it.
    pub(super) fn step(&mut self, replica: usize, step: &Step) -> Queues {
        self.busy_s[replica] += (step.outcome.finished - step.outcome.started).as_secs();
        self.queues[replica] = step.settled.queues;
        self.queues.iter().fold(Queues::default(), |sum, queues| Queues {
            recurrent: sum.recurrent + queues.recurrent,
            coda: sum.coda + queues.coda,
            decode: sum.decode + queues.decode,
            prompt: sum.prompt + queues.prompt,
            resident: sum.resident + queues.resident,
            kv_used_blocks: sum.kv_used_blocks.saturating_add(queues.kv_used_blocks),
            kv_cached_blocks: sum.kv_cached_blocks.saturating_add(queues.kv_cached_blocks),
        })
    }

    pub(super) fn metrics(&self, makespan_s: f64) -> ReplicaMetrics {
        let share = |busy_s: f64| if makespan_s > 0.0 { busy_s / makespan_s } else { 0.0 };
        let (busiest, all) = (self.busy_s.iter().copied().fold(0.0, f64::max), self.busy_s.iter().sum::<f64>());
        ReplicaMetrics {
            requests: self.requests.clone(),
            busy_share: self.busy_s.iter().copied().map(share).collect(),
            imbalance: if all > 0.0 { busiest * self.count() as f64 / all } else { 1.0 },
        }
    }
}
