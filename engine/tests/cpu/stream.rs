//! A client that hears of a run through its observer alone: every token with its depth, and who is over and why.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use engine::batch::{Outcome, Scored};
use engine::event_loop::{self, Observer, Refused, Step};
use engine::executor::VirtualClock;
use engine::inbox::{Inbox, Message, Next, Replay};
use engine::layout::Layout;
use engine::live::cpu::{CpuExecutor, CpuOptions, bf16};
use engine::live::{LiveConfig, Transcripts};
use engine::request::{Arrival, RequestId};
use engine::scheduler::{Finish, Mode, Pressure, Scheduler};
use engine::submission::Submission;
use engine::units::{Depth, Nanos};

use crate::serve::{MODELS, OVERLAPS, Run, early, full_depth, model};

/// Why a request is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Length,
    Token,
    Failed,
    Cancelled,
}

/// What a client has of one request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answer {
    limit: u32,
    pub(crate) output: Vec<u32>,
    pub(crate) depths: Vec<Depth>,
    pub(crate) end: Option<End>,
    pub(crate) scores: Vec<Scored>,
}

/// Every client of a run.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    pub(crate) answers: BTreeMap<RequestId, Answer>,
    pub(crate) refused: BTreeMap<RequestId, String>,
    /// Nothing is left to do.
    idle: bool,
    /// The most blocks that were held.
    peak_blocks: u32,
}

impl Observer for Clients {
    fn arrived(&mut self, arrival: &Arrival, _: Nanos, refused: Option<&Refused>) {
        let request = arrival.request;
        match refused {
            Some(refused) => {
                self.refused.insert(request.id, refused.to_string());
            }
            None => {
                self.answers.insert(request.id, Answer { limit: request.max_output_tokens, ..Answer::default() });
            }
        }
    }

    fn cancelled(&mut self, request: RequestId, _: Nanos) {
        self.answers.get_mut(&request).unwrap().end = Some(End::Cancelled);
    }

    fn step(&mut self, step: &Step) -> ControlFlow<()> {
        let Outcome { batch, rows, tokens, scores, .. } = &step.outcome;
        let mut tokens = tokens.as_slice();
        for (row, told) in batch.rows.iter().zip(rows) {
            let (emitted, rest) = tokens.split_at(row.emitted() as usize);
            tokens = rest;
            let answer = self.answers.get_mut(&row.request).unwrap();
            if answer.end.is_some() {
                continue;
            }
            for &token in &emitted[..row.delivered(told) as usize] {
                answer.output.push(token);
                answer.depths.push(row.depth);
            }
            answer.end = match told {
                told if told.failed => Some(End::Failed),
                told if told.finished => Some(End::Token),
                _ => (answer.output.len() as u32 == answer.limit).then_some(End::Length),
            };
        }
        for scored in scores {
            self.answers.get_mut(&scored.request).unwrap().scores.push(scored.clone());
        }
        self.idle = false;
        self.peak_blocks = self.peak_blocks.max(step.settled.queues.kv_used_blocks);
        ControlFlow::Continue(())
    }

    fn idle(&mut self) {
        self.idle = true;
    }
}

/// What clients and executor know once a run is over.
pub(crate) struct Streamed {
    pub(crate) clients: Clients,
    pub(crate) transcripts: Transcripts,
    pub(crate) preemptions: u64,
}

/// Serves what comes in.
pub(crate) fn stream(run: &Run, config: LiveConfig, inbox: &mut dyn Inbox) -> Streamed {
    let mut scheduler = Scheduler::new(config.scheduler).unwrap();
    let options = CpuOptions { threads: 1, ..CpuOptions::default() };
    let mut executor = CpuExecutor::<bf16>::new(&model(run.model), &run.weights, config, options).unwrap();
    let mut clients = Clients::default();
    event_loop::run(&mut scheduler, &mut executor, &mut VirtualClock::default(), inbox, &mut clients).unwrap();
    assert!(clients.idle, "every request is over");
    Streamed { clients, transcripts: executor.transcripts().clone(), preemptions: scheduler.preemptions() }
}

/// Serves a run's requests as `ask` changes them.
pub(crate) fn stream_as(run: &Run, config: LiveConfig, ask: impl Fn(Arrival) -> Submission) -> Streamed {
    stream(run, config, &mut Replay::new(run.arrivals().into_iter().map(ask)))
}

/// Requests that are cancelled in the middle of a run: when nothing else came for so many times.
struct Fickle<I> {
    inbox: I,
    polls: u32,
    cancels: Vec<(u32, RequestId)>,
}

impl<I: Inbox> Inbox for Fickle<I> {
    fn poll(&mut self, now: Nanos) -> Option<Message> {
        if let Some(message) = self.inbox.poll(now) {
            return Some(message);
        }
        self.polls += 1;
        self.cancels.pop_if(|(polls, _)| *polls <= self.polls).map(|(_, request)| Message::Cancel(request))
    }

    fn next(&mut self) -> Next {
        self.inbox.next()
    }
}

#[test]
fn what_outcomes_stream_is_what_the_executor_said() {
    for name in MODELS {
        for overlap in OVERLAPS {
            for mode in [Mode::Refill { min_coda_batch: 1 }, Mode::ContinuousBatching] {
                let run = Run { mode, overlap, ..Run::of(name, Layout::LastExited, early(name)) };
                let eos = stream_as(&run, run.live(), Submission::from).transcripts.get(RequestId(4)).output[3];
                for (finish, end) in [(Finish::Length, None), (Finish::Eos, Some(eos)), (Finish::Eos, None)] {
                    let run = Run { finish, eos: end, ..run.clone() };
                    let Streamed { clients, transcripts, .. } = stream_as(&run, run.live(), Submission::from);
                    let what = format!("{name}, {overlap:?}, {mode:?}, {finish:?}, {end:?}");
                    assert_eq!(clients.answers.len(), run.workload.len(), "{what}");
                    assert!(clients.peak_blocks > 0, "{what}: steps say what is held");
                    for (request, answer) in &clients.answers {
                        let said = transcripts.get(*request);
                        let expected = (&said.output, &said.depths);
                        assert_eq!((&answer.output, &answer.depths), expected, "{what}: request {}", request.0);
                        let at_limit = answer.output.len() as u32 == answer.limit;
                        let by_token = match end {
                            Some(end) => said.output.last() == Some(&end),
                            None => finish == Finish::Eos,
                        };
                        let expected = if by_token { End::Token } else { End::Length };
                        assert!(by_token || at_limit, "{what}: request {} is cut", request.0);
                        assert_eq!(answer.end, Some(expected), "{what}: request {}", request.0);
                    }
                }
            }
        }
    }
}

#[test]
fn a_request_that_is_preempted_or_cancelled_streams_each_token_once() {
    for pressure in [Pressure::Recompute, Pressure::Offload] {
        for overlap in OVERLAPS {
            let run = Run { overlap, ..Run::of("tiny-ouro", Layout::DepthIndexed, full_depth("tiny-ouro")) };
            let run = run.with_long_outputs();
            let roomy = stream_as(&run, run.live(), Submission::from).transcripts;
            let tight = run.tight(pressure);
            let cancels = vec![(60, RequestId(9)), (40, RequestId(4)), (9, RequestId(1)), (3, RequestId(11))];
            let mut inbox =
                Fickle { inbox: Replay::new(tight.arrivals().into_iter().map(Submission::from)), polls: 0, cancels };
            let Streamed { clients, preemptions, .. } = stream(&tight, tight.live(), &mut inbox);
            let what = format!("{pressure:?}, {overlap:?}");
            assert!(preemptions > 2, "{what}: the pool was meant to be too small, {preemptions} preemptions");
            let mut cancelled = 0;
            for (request, answer) in &clients.answers {
                let whole = roomy.get(*request);
                assert!(whole.output.starts_with(&answer.output), "{what}: request {}", request.0);
                match answer.end {
                    Some(End::Cancelled) => cancelled += 1,
                    end => {
                        assert_eq!(end, Some(End::Length), "{what}: request {}", request.0);
                        assert_eq!(answer.output.len(), whole.output.len(), "{what}: request {}", request.0);
                    }
                }
            }
            assert!(cancelled >= 2, "{what}: {cancelled} cancelled");
        }
    }
}
