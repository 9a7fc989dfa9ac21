//! A server on a port of its own, of the smallest model with every part of an Ouro.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use engine::architecture::Architecture;
use engine::batch::{Batch, Outcome};
use engine::cpu::{CpuExecutor, CpuOptions};
use engine::executor::{Clock, Executor, Reject};
use engine::layout::Layout;
use engine::live::{Exits, LiveConfig};
use engine::models::gate::GateSpec;
use engine::models::weights::Weights;
use engine::request::RequestId;
use engine::scheduler::{Finish, KvConfig, Mode, Overlap, Pressure, SchedulerConfig};
use engine::submission::{Sampling, Submission};
use engine::units::Depth;
use serve::call::Client;
use serve::engine_thread;
use serve::http::{Guard, Limits, Server};
use serve::metrics::Over;
use serve::model::Model;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::client::PATIENCE;

/// Ids of the fixtures' tokenizer; the model has as many.
pub(crate) const VOCAB: u64 = 400;

/// How a test's server is made; fields are overwritten with struct update.
pub(crate) struct Setup {
    pub(crate) max_num_seqs: u32,
    /// M, so that a prompt can take many batches.
    pub(crate) max_num_batched_tokens: u32,
    pub(crate) context_tokens: u32,
    pub(crate) pages: u32,
    pub(crate) overlap: Overlap,
    pub(crate) threshold: f32,
    pub(crate) limits: Limits,
    pub(crate) guard: Guard,
    pub(crate) pace: Pace,
}

/// How long each batch takes at least, in microseconds; can be changed while it runs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pace(Arc<AtomicU64>);

impl Pace {
    pub(crate) fn of(time: Duration) -> Self {
        let pace = Self::default();
        pace.set(time);
        pace
    }

    pub(crate) fn set(&self, time: Duration) {
        self.0.store(time.as_micros() as u64, Ordering::Relaxed);
    }
}

/// An executor that takes its time.
pub(crate) struct Paced<E>(pub(crate) E, pub(crate) Pace);

impl<E: Executor> Executor for Paced<E> {
    type Error = E::Error;

    fn submit(&mut self, submission: &Submission) -> Result<(), Reject> {
        self.0.submit(submission)
    }

    fn forget(&mut self, request: RequestId) {
        self.0.forget(request);
    }

    fn launch(&mut self, batch: Batch, clock: &mut dyn Clock) -> Result<(), Self::Error> {
        self.0.launch(batch, clock)
    }

    fn wait(&mut self, clock: &mut dyn Clock) -> Result<Outcome, Self::Error> {
        match self.1.0.load(Ordering::Relaxed) {
            0 => {}
            pace => std::thread::sleep(Duration::from_micros(pace)),
        }
        self.0.wait(clock)
    }
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            max_num_seqs: 4,
            max_num_batched_tokens: 256,
            context_tokens: 512,
            pages: 512,
            overlap: Overlap::Asynchronous,
            threshold: 0.6,
            limits: Limits::default(),
            guard: Guard::default(),
            pace: Pace::default(),
        }
    }
}

/// A server that runs until it is stopped.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    pub(crate) client: Client,
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<(), String>>,
}

pub(crate) fn architecture() -> Architecture {
    Architecture {
        name: "micro".into(),
        vocab: VOCAB,
        hidden: 16,
        ffn: 16,
        heads: 1,
        head_dim: 16,
        core_layers: 1,
        r_max: Depth(4),
        r_min: Depth(2),
        ..Architecture::builtin("tiny-ouro").unwrap()
    }
}

pub(crate) fn fixtures() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tokenizer")
}

impl Setup {
    pub(crate) fn scheduler(&self) -> SchedulerConfig {
        let architecture = architecture();
        SchedulerConfig {
            mode: Mode::Refill { min_coda_batch: 1 },
            overlap: self.overlap,
            finish: Finish::Eos,
            max_num_seqs: self.max_num_seqs,
            max_num_batched_tokens: self.max_num_batched_tokens,
            min_free_slots: 1,
            max_context_tokens: self.context_tokens,
            r_max: architecture.r_max,
            r_min: if self.overlap == Overlap::Lookahead { architecture.r_min } else { Depth::FIRST },
            kv: KvConfig {
                layout: Layout::LastExited,
                blocks: self.pages * u32::from(architecture.r_max.0),
                block_tokens: 4,
                headroom_blocks: 0,
                pressure: Pressure::Recompute,
                boundary_layers: false,
            },
        }
    }

    pub(crate) fn executor(&self) -> CpuExecutor {
        let architecture = architecture();
        let lookahead = self.overlap == Overlap::Lookahead;
        let exits = Exits::Gate(GateSpec { threshold: self.threshold, min_depth: None, lookahead });
        let config = LiveConfig { keep_transcripts: false, ..LiveConfig::new(self.scheduler(), exits) };
        let options = CpuOptions { threads: 1, ..CpuOptions::default() };
        CpuExecutor::new(&architecture, &Weights::random(&architecture, 3), config, options).unwrap()
    }

    pub(crate) fn start(self) -> Running {
        let pace = self.pace.clone();
        self.start_with(move |executor| Paced(executor, pace))
    }

    /// With an executor around the CPU's.
    pub(crate) fn start_with<E: Executor>(self, around: impl FnOnce(CpuExecutor) -> E + Send + 'static) -> Running {
        let (tokenizer, chat) = Model::text(&fixtures(), VOCAB).unwrap();
        let model = Model {
            name: "micro".into(),
            tokenizer,
            chat,
            vocab: VOCAB as u32,
            context_tokens: self.context_tokens,
            end_tokens: [2, 0].into(),
            sampling: Sampling { temperature: 1.0, ..Sampling::GREEDY },
            exit_threshold: self.threshold,
            full_depth_only: false,
        };
        let (limits, guard) = (self.limits.clone(), self.guard.clone());
        let make = move || {
            let config = self.scheduler();
            Ok((around(self.executor()), config))
        };
        let engine = engine_thread::start(limits.max_queue, make).unwrap();
        let client = engine.client.clone();
        let listener = Server::listen(([127, 0, 0, 1].into(), 0)).unwrap();
        let server = Server::new(listener, engine, model, limits, guard).unwrap();
        let address = server.address().unwrap();
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(server.run(async { drop(stopped.await) }));
        Running { address, client, stop, task }
    }
}

impl Running {
    pub(crate) fn count(&self, why: Over) -> u64 {
        self.client.metrics().count(why)
    }

    /// Batches that ran so far.
    pub(crate) fn batches(&self) -> u64 {
        let text = self.client.metrics().text();
        let counts = text.lines().filter(|line| line.starts_with("loopbatch_batch_rows_count"));
        counts.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
    }

    /// Waits until something holds.
    pub(crate) async fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let waiting = async {
            while !holds(self) {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        if tokio::time::timeout(PATIENCE, waiting).await.is_err() {
            panic!("{what} does not come: {:?}\n{}", self.client.metrics().queues(), self.client.metrics().text());
        }
    }

    /// Waits until no request is on its way and every page is free.
    pub(crate) async fn idle(&self) {
        self.until("an idle engine", |server| {
            server.client.open() == 0 && server.client.metrics().queues() == (0, 0, 0)
        })
        .await;
    }

    /// Stops it, and gives what it came to.
    pub(crate) async fn stop(self) -> Result<(), String> {
        let Self { client, stop, task, .. } = self;
        // The engine ends behind the last client.
        drop(client);
        let _ = stop.send(());
        tokio::time::timeout(PATIENCE, task).await.expect("it ends in time").unwrap()
    }

    /// Waits for its end.
    pub(crate) async fn ended(self) -> Result<(), String> {
        let Self { client, task, stop, .. } = self;
        drop(client);
        let result = tokio::time::timeout(PATIENCE, task).await.expect("it ends in time").unwrap();
        drop(stop);
        result
    }
}
