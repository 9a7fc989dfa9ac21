//! Runs whose steps nobody saw: what a client knows of its requests, counted as everywhere else.

use super::Recorder;
use crate::metrics::RequestRecord;
use crate::request::RequestId;
use crate::units::{Depth, Nanos};

impl Recorder {
    /// Takes a request that a server has answered, behind its arrival. `tokens` are the times of its tokens, none if its client
    /// cannot tell them apart; `depths` are their exit depths, none if the server does not tell them.
    pub fn answered(&mut self, record: &RequestRecord, tokens: &[Nanos], depths: &[Depth]) {
        self.sent.retain(|&(waiting, _)| waiting != record.request);
        self.output_tokens += u64::from(record.output_tokens);
        self.last_step = self.last_step.max(record.finish);
        for pair in tokens.windows(2) {
            self.latencies.itl.record(pair[1] - pair[0]);
        }
        // The first is prefill's; only decode steps have exits.
        for depth in depths.iter().skip(1) {
            self.exit_depths[usize::from(depth.0)] += 1;
        }
        self.count(record);
    }

    /// Takes a request that failed at `now`, with so many tokens until then.
    pub fn unanswered(&mut self, request: RequestId, tokens: u32, now: Nanos) {
        self.sent.retain(|&(waiting, _)| waiting != request);
        self.output_tokens += u64::from(tokens);
        self.last_step = self.last_step.max(now);
        self.counts.failed += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Unjudged;
    use crate::request::{Arrival, Request};

    #[test]
    fn a_clients_view_has_latencies_and_none_of_the_devices_figures() {
        let mut recorder = Recorder::new(4, None);
        let request =
            |id, at| Request { id: RequestId(id), arrival: Nanos(at), prompt_tokens: 5, max_output_tokens: 3 };
        for id in 0..2 {
            let arrival = Arrival { request: request(id, 1000), output_tokens: 3, cancel_after: None };
            recorder.arrived(&arrival, Nanos(1500), None);
        }
        let record = RequestRecord {
            request: RequestId(0),
            arrival: Nanos(1000),
            sent: Nanos(1500),
            admitted: Nanos(1500),
            first_token: Nanos(3000),
            finish: Nanos(7000),
            prompt_tokens: 5,
            output_tokens: 3,
            depth_sum: 5,
            prefilled_tokens: 0,
            preemptions: 0,
        };
        recorder.answered(&record, &[3000, 4000, 7000].map(Nanos), &[4, 2, 3].map(Depth));
        recorder.unanswered(RequestId(1), 1, Nanos(9000));
        let metrics = recorder.metrics();
        let counts = metrics.requests;
        assert_eq!((counts.arrived, counts.finished, counts.failed), (2, 1, 1));
        assert_eq!((metrics.ttft.p50, metrics.tpot.p50, metrics.itl.count), (2e-6, 2e-6, 2));
        assert_eq!((metrics.output_tokens, metrics.makespan_s), (4, 8e-6));
        assert_eq!((metrics.mean_exit_depth, metrics.exit_depths.clone()), (2.5, vec![0, 0, 1, 1]));
        assert_eq!((metrics.saturation(), metrics.work, metrics.steady), (Err(Unjudged::StepsUnseen), None, None));
        assert!(metrics.is_from_outside());
    }
}
