//! A server in this process, on a port of its own.

use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use serve::call;
use serve::engine_thread::Engine;
use serve::http::{Guard, Limits, Server as Http};
use serve::model::ServedModel;
use serve::setup::{Ready, ServedRun};
use sim::live::LiveDevice;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

use crate::client::Client;

/// Eight sequences, each of the whole context if need be.
pub(crate) const SCENARIO: &str = "scheduler: { max_num_seqs: 8, max_context_tokens: 256 }\nkv: { blocks: 512 }";

/// The small model of random weights with which the engine's arithmetic is tested.
pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/hf/fixtures/tokenizer")
}

/// How to run a model in tests.
pub(crate) fn run(model: &Path, scenario: Option<PathBuf>) -> ServedRun {
    ServedRun {
        model: Some(model.into()),
        device: LiveDevice::Cpu,
        scenario,
        exit_threshold: None,
        min_depth: None,
        threads: 1,
    }
}

/// A server that answers until it is dropped.
pub(crate) struct Server {
    pub(crate) client: Client,
    /// The engine's own count.
    pub(crate) engine: call::Client,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<Result<(), String>>>,
}

impl Server {
    pub(crate) fn start() -> Self {
        Self::with(SCENARIO, Limits::default(), Guard::default())
    }

    pub(crate) fn of(scenario: &str) -> Self {
        Self::with(scenario, Limits::default(), Guard::default())
    }

    pub(crate) fn with(scenario: &str, limits: Limits, guard: Guard) -> Self {
        Self::serving(&folder(), scenario, limits, guard)
    }

    pub(crate) fn serving(folder: &Path, scenario: &str, limits: Limits, guard: Guard) -> Self {
        let dir = TempDir::new().unwrap();
        let file = dir.path().join("scenario.yaml");
        std::fs::write(&file, scenario).unwrap();
        let Ready { engine, model, .. } = run(folder, Some(file)).start(Some("tiny"), limits.max_queue).unwrap();
        Self::around(engine, model, limits, guard)
    }

    pub(crate) fn around(engine: Engine, model: ServedModel, limits: Limits, guard: Guard) -> Self {
        let runtime = Runtime::new().unwrap();
        let listener = Http::listen(("127.0.0.1".parse().unwrap(), 0)).unwrap();
        let server = runtime.block_on(async { Http::new(listener, engine, model, limits, guard).unwrap() });
        let client = Client(server.address().unwrap());
        let engine = server.client();
        let (stop, stopped) = oneshot::channel::<()>();
        let until = async { drop(stopped.await) };
        let thread = std::thread::spawn(move || runtime.block_on(server.run(until)));
        Self { client, engine, stop: Some(stop), thread: Some(thread) }
    }

    /// Lets it finish what runs, and says how it ended.
    pub(crate) fn stop(mut self) -> Result<(), String> {
        self.tell_to_stop();
        self.ended()
    }

    /// As a signal would.
    pub(crate) fn tell_to_stop(&mut self) {
        drop(self.stop.take());
    }

    /// Waits for its end.
    pub(crate) fn ended(self) -> Result<(), String> {
        let Self { engine, stop, thread, .. } = self;
        // The engine goes on while someone could ask it.
        drop(engine);
        let ended = thread.unwrap().join().unwrap();
        drop(stop);
        ended
    }
}
