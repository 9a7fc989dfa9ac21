//! The engine on a thread of its own: requests go in over a channel that wakes it, tokens come out through the router.

use std::any::Any;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;

use engine::batch::{Row, RowOutcome, Scored, TokenAt};
use engine::event_loop::{self, Observer, Refused, Step};
use engine::executor::{Clock, Executor};
use engine::live::channel;
use engine::live::wall_clock::WallClock;
use engine::request::{Arrival, RequestId};
use engine::scheduler::{Scheduler, SchedulerConfig};
use engine::units::Nanos;
use tokio::sync::watch;

use crate::call::Client;
use crate::metrics::{Metrics, Over};
use crate::router::{Last, Requests, Router, Token, What};

/// The engine, from outside.
#[derive(Debug)]
pub struct Engine {
    /// What its scheduler was told.
    pub config: SchedulerConfig,
    /// Whoever has one can ask; once the last is dropped the engine finishes what it has and ends.
    pub client: Client,
    /// Tells when the engine has ended: with what went wrong, or `Ok` behind the last client.
    pub ended: watch::Receiver<Option<Result<(), String>>>,
    /// The thread.
    pub thread: JoinHandle<()>,
}

/// Starts the executor that `make` makes, which need not be `Send`, under the scheduler's settings that come with it. At
/// most `max_queue` requests may wait behind those that run. Returns when the executor is ready.
///
/// # Errors
/// What went wrong while it was made.
pub fn start<E: Executor>(
    max_queue: usize,
    make: impl FnOnce() -> Result<(E, SchedulerConfig), String> + Send + 'static,
) -> Result<Engine, String> {
    let (ready, is_ready) = sync_channel(1);
    let (ended, told) = watch::channel(None);
    let run = move || {
        let mut router = None;
        let body = AssertUnwindSafe(|| run(make, max_queue, &ready, &mut router));
        let result = catch_unwind(body).unwrap_or_else(|panic| Err(said(&*panic)));
        match (&result, router) {
            (Err(reason), Some(router)) => router.end(reason),
            (Err(reason), None) => drop(ready.send(Err(reason.clone()))),
            (Ok(()), _) => {}
        }
        let _ = ended.send(Some(result));
    };
    let thread = std::thread::Builder::new().name("engine".into()).spawn(run);
    let thread = thread.map_err(|error| format!("the engine's thread did not start: {error}"))?;
    let (client, config) = is_ready.recv().unwrap_or_else(|_| Err("the engine ended before it was ready".into()))?;
    Ok(Engine { config, client, ended: told, thread })
}

/// The engine's thread. `router` is filled in once there is one.
fn run<E: Executor>(
    make: impl FnOnce() -> Result<(E, SchedulerConfig), String>,
    max_queue: usize,
    ready: &SyncSender<Result<(Client, SchedulerConfig), String>>,
    router: &mut Option<Arc<Router>>,
) -> Result<(), String> {
    let (mut executor, config) = make()?;
    let mut scheduler = Scheduler::new(config).map_err(|error| error.to_string())?;
    let metrics = Arc::new(Metrics::new(config.r_max.0, config.kv.blocks));
    let limit = max_queue.saturating_add(config.max_num_seqs as usize);
    let router = router.insert(Arc::new(Router::new(limit, metrics)));
    let mut clock = WallClock::start();
    let (sender, mut inbox) = channel(clock.waker());
    let client = Client::new(router.clone(), sender, clock.clone());
    // Whoever started it may have gone; then the inbox is closed.
    let _ = ready.send(Ok((client, config)));
    let mut observer = Told { router, clock: clock.clone() };
    event_loop::run(&mut scheduler, &mut executor, &mut clock, &mut inbox, &mut observer)
        .map_err(|error| error.to_string())
}

/// What a panic said.
fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
    format!("the engine panicked: {}", text.unwrap_or("it did not say why"))
}

/// Tells the calls what happens, and counts it.
struct Told<'a> {
    router: &'a Router,
    clock: WallClock,
}

impl Observer for Told<'_> {
    fn arrived(&mut self, arrival: &Arrival, _: Nanos, refused: Option<&Refused>) {
        let mut requests = self.router.requests();
        let id = arrival.request.id;
        if let Some(refused) = refused {
            requests.end(id, What::Refused(refused.clone()), Over::Refused);
        } else if let Some(waiting) = requests.get(id) {
            // Its call has not gone away meanwhile.
            self.router.metrics.arrived(arrival.request.prompt_tokens);
            waiting.tell(What::Accepted);
        }
    }

    fn idle(&mut self) {
        self.router.metrics.idle();
    }

    fn step(&mut self, step: &Step) -> ControlFlow<()> {
        let outcome = &step.outcome;
        let batch = &outcome.batch;
        self.router.metrics.ran(batch.stage, batch.rows.len(), step.settled.queues);
        self.router.metrics.reused(step.settled.reuse);
        let mut requests = self.router.requests();
        for scored in &outcome.scores {
            if let (TokenAt::Prompt(_), Some(waiting)) = (scored.at, requests.get(scored.request)) {
                waiting.tell(What::Prompt(scored.clone()));
            }
        }
        let now = self.clock.now();
        let mut tokens = outcome.tokens.as_slice();
        for (row, told) in batch.rows.iter().zip(&outcome.rows) {
            let (ids, rest) = tokens.split_at(row.emitted() as usize);
            tokens = rest;
            self.row(&mut requests, row, told, (ids, &outcome.scores), now);
        }
        ControlFlow::Continue(())
    }
}

impl Told<'_> {
    /// Tells what a row delivered; rows of requests that are over are for nobody.
    fn row(
        &self,
        requests: &mut Requests<'_>,
        row: &Row,
        told: &RowOutcome,
        (ids, scores): (&[u32], &[Scored]),
        now: Nanos,
    ) {
        let delivered = row.delivered(told);
        for (index, &id) in (row.token..).zip(&ids[..delivered as usize]) {
            let Some(waiting) = requests.get(row.request) else { return };
            let before = waiting.told.replace(now);
            let since = now.saturating_sub(before.unwrap_or(waiting.arrived));
            self.router.metrics.token(row.depth, since, before.is_none());
            let score = score_of(scores, row.request, index);
            let token = |last| What::Token(Token { id, depth: row.depth, score, last });
            let ends = told.finished && index + 1 == row.token + delivered && !told.failed;
            match (ends, waiting.is_full_at(index)) {
                (true, _) => requests.end(row.request, token(Some(Last::Stop)), Over::Stop),
                (false, true) => requests.end(row.request, token(Some(Last::Length)), Over::Length),
                (false, false) => waiting.tell(token(None)),
            }
        }
        if told.failed {
            let reason = "the model's numbers ran out of range: its logits are not finite";
            requests.end(row.request, What::Failed(reason.into()), Over::Failed);
        }
    }
}

fn score_of(scores: &[Scored], request: RequestId, index: u32) -> Option<Scored> {
    let is_it = |scored: &&Scored| scored.request == request && scored.at == TokenAt::Output(index);
    scores.iter().find(is_it).cloned()
}
