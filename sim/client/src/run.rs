//! One run of requests against a server, in real time.

use std::sync::{Arc, Mutex as Lock, PoisonError};
use std::thread;
use std::time::Duration;

use engine::executor::Clock;
use engine::live::wall_clock::WallClock;
use engine::metrics::{Latency, LatencySummary};
use engine::request::Arrival;
use engine::units::Nanos;
use http_body_util::BodyExt;
use hyper::body::{Bytes, Incoming};
use hyper::{Method, Response, StatusCode};
use serde::Serialize;
use tokio::sync::Mutex;
use tokio::sync::mpsc::{self, Receiver, Sender};

use crate::answer::{Failure, FailureKind, Seen};
use crate::connection::{Connections, NoResponse};
use crate::dialect::{Dialect, Path};
use crate::endpoint::Endpoint;
use crate::events::{Stream, message};
use crate::feed::{self, Job};

/// A send or a look at the connections that is later than this is late: 5 ms.
pub const LATE: Nanos = Nanos(5_000_000);

/// Requests that wait for a loop that cannot keep up, at most; more wait in front of the thread that makes them.
const WAITING: usize = 1 << 16;

/// Characters of an error's body that are kept.
const SAID_MAX: usize = 300;

/// When requests are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// At their arrivals.
    Open,
    /// By so many clients, each of which sends its next request so long after its last one is over.
    Closed {
        /// Clients, at least 1.
        concurrency: u32,
        /// How long they think.
        think: Nanos,
    },
}

/// What a run saw.
#[derive(Clone, Debug)]
pub struct Run {
    /// Every request, in the order of `due`.
    pub seen: Vec<Seen>,
    /// How well the client kept up.
    pub health: Health,
}

/// How well a client kept up with its own plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Health {
    /// How long after its time the client turned to a request, in seconds.
    pub send_delay: LatencySummary,
    /// Requests that were later than [`LATE`].
    pub late: u64,
    /// How long the client's loop was busy with other things when it was asked, every 10 ms: that late, in seconds, may
    /// an event's time be.
    pub lag: LatencySummary,
    /// Connections that were opened.
    pub connections: u32,
}

impl Health {
    /// The client was not the bottleneck: at most a hundredth of the sends was late, and of the looks at the connections.
    pub fn kept_up(&self) -> bool {
        self.late * 100 <= self.send_delay.count && self.lag.p99 <= LATE.as_secs()
    }
}

/// Sends the requests, and returns when the last of them is over. A request that takes longer than `timeout` is given up.
///
/// Everything but the making of requests happens on the calling thread.
///
/// # Errors
/// The client cannot begin: no runtime, or nobody is trusted for https.
pub fn run(
    endpoint: &Endpoint,
    dialect: &Dialect,
    arrivals: impl Iterator<Item = Arrival> + Send,
    load: Load,
    timeout: Duration,
) -> Result<Run, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("the client cannot begin: {error}"))?;
    let connections = Connections::new(endpoint.clone())?;
    let clock = WallClock::start();
    let (jobs, waiting) = mpsc::channel(match load {
        Load::Open => WAITING,
        Load::Closed { concurrency, .. } => concurrency as usize,
    });
    let (beats, heard) = mpsc::channel(1);
    let (path, lag) = (dialect.path, Lock::default());
    let asking = Arc::new(Asking { connections, clock: clock.clone(), path, timeout, lag });
    Ok(thread::scope(|scope| {
        scope.spawn(|| {
            // Dropped behind the last request, which ends the run.
            let jobs = jobs;
            feed::feed(arrivals, dialect, load, &clock, &jobs);
        });
        scope.spawn(|| feed::beat(&clock, &beats));
        runtime.block_on(drive(&asking, waiting, load, heard))
    }))
}

/// Everything that a request needs.
struct Asking {
    connections: Connections,
    clock: WallClock,
    path: Path,
    timeout: Duration,
    lag: Lock<Latency>,
}

async fn drive(asking: &Arc<Asking>, jobs: Receiver<Job>, load: Load, heard: Receiver<Nanos>) -> Run {
    let (results, mut seen) = mpsc::channel(WAITING);
    let listening = tokio::spawn(listen(asking.clone(), heard));
    match load {
        Load::Open => {
            tokio::spawn(open(asking.clone(), jobs, results));
        }
        Load::Closed { concurrency, think } => {
            let jobs = Arc::new(Mutex::new(jobs));
            // Its clients are there before they ask.
            for _ in 0..concurrency {
                asking.connections.prepare().await;
            }
            for _ in 0..concurrency {
                tokio::spawn(closed(asking.clone(), jobs.clone(), think, results.clone()));
            }
            drop(results);
        }
    }
    let mut all: Vec<Seen> = Vec::new();
    while let Some(one) = seen.recv().await {
        all.push(one);
    }
    // The thread that asks ends with the task's end of the channel, which is gone when the task is.
    listening.abort();
    let _ = listening.await;
    all.sort_by_key(|seen| (seen.due, seen.arrival.request.id));
    let mut delay = Latency::default();
    all.iter().for_each(|seen| delay.record(seen.sent.saturating_sub(seen.due)));
    let late = all.iter().filter(|seen| seen.sent.saturating_sub(seen.due) > LATE).count() as u64;
    let health = Health {
        send_delay: delay.summary(),
        late,
        lag: asking.lag.lock().unwrap_or_else(PoisonError::into_inner).summary(),
        connections: asking.connections.opened(),
    };
    Run { seen: all, health }
}

/// Everyone at their time.
async fn open(asking: Arc<Asking>, mut jobs: Receiver<Job>, results: Sender<Seen>) {
    while let Some(job) = jobs.recv().await {
        let (asking, results) = (asking.clone(), results.clone());
        tokio::spawn(async move { drop(results.send(asking.ask(job).await).await) });
    }
}

/// One client of a closed loop.
async fn closed(asking: Arc<Asking>, jobs: Arc<Mutex<Receiver<Job>>>, think: Nanos, results: Sender<Seen>) {
    loop {
        let job = jobs.lock().await.recv().await;
        let Some(job) = job else { return };
        if results.send(asking.ask(job).await).await.is_err() {
            return;
        }
        if think > Nanos::ZERO {
            tokio::time::sleep(Duration::from_nanos(think.0)).await;
        }
    }
}

/// Notes how late the loop hears of a moment.
async fn listen(asking: Arc<Asking>, mut heard: Receiver<Nanos>) {
    while let Some(asked) = heard.recv().await {
        let late = asking.clock.now().saturating_sub(asked);
        asking.lag.lock().unwrap_or_else(PoisonError::into_inner).record(late);
    }
}

impl Asking {
    async fn ask(&self, Job { arrival, due, body }: Job) -> Seen {
        let sent = self.clock.now();
        let mut stream = Stream::default();
        let asked = tokio::time::timeout(self.timeout, self.answer(body, &mut stream)).await;
        let late = || (FailureKind::Timeout, format!("no end after {} s", self.timeout.as_secs_f64()));
        let tokens = stream.tokens();
        let result = asked.unwrap_or_else(|_| Err(late())).and_then(|()| stream.end());
        let result = result.map_err(|(kind, said)| Failure { kind, said, tokens, at: self.clock.now() });
        Seen { arrival, due: due.unwrap_or(sent), sent, result }
    }

    /// Sends a request, and reads the stream to its end.
    async fn answer(&self, body: Bytes, stream: &mut Stream) -> Result<(), (FailureKind, String)> {
        let answered =
            self.connections.send(Method::POST, self.path.name(), body).await.map_err(|error| match error {
                NoResponse::Connect(said) => (FailureKind::Connect, said),
                NoResponse::Broken(said) => (FailureKind::Broken, said),
            })?;
        let (mut response, sender) = answered.into_parts();
        if response.status() != StatusCode::OK {
            let kind = FailureKind::Status(response.status().as_u16());
            let said = said(response).await;
            self.connections.give_back(sender);
            return Err((kind, said));
        }
        while let Some(frame) = response.body_mut().frame().await {
            let frame = frame.map_err(|error| (FailureKind::Broken, error.to_string()))?;
            if let Some(bytes) = frame.data_ref() {
                stream.push(bytes, self.clock.now())?;
            }
        }
        self.connections.give_back(sender);
        Ok(())
    }
}

/// What a refusal's body says, cut short.
async fn said(response: Response<Incoming>) -> String {
    let Ok(body) = response.into_body().collect().await else { return String::new() };
    let bytes = body.to_bytes();
    let text = match serde_json::from_slice(&bytes) {
        Ok(error) => message(&error),
        Err(_) => String::from_utf8_lossy(&bytes).into_owned(),
    };
    text.chars().take(SAID_MAX).collect()
}
