//! Asking the engine, and hearing what comes of it. A call that is dropped takes its requests with it.

use std::collections::VecDeque;
use std::sync::Arc;

use engine::event_loop::Refused;
use engine::executor::Clock;
use engine::inbox::Message;
use engine::live::Sender;
use engine::live::wall_clock::WallClock;
use engine::request::{Arrival, Request, RequestId};
use engine::submission::{Ends, ExitRule, Logprobs, Sampling, Submission};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::metrics::{Metrics, Over};
use crate::router::{Event, Router, Unavailable, What};

/// Asks the engine; cheap to copy.
#[derive(Clone, Debug)]
pub struct Client {
    router: Arc<Router>,
    sender: Sender,
    clock: WallClock,
}

/// One request: a prompt, and how it is to be answered.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Token ids, at least one.
    pub prompt: Arc<[u32]>,
    /// Output tokens at most, at least 1.
    pub max_tokens: u32,
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// When they leave the loop; as the server's settings say if there is none.
    pub exit: Option<ExitRule>,
    /// What ends it; the model's end tokens if there is none.
    pub ends: Option<Ends>,
    /// Which log-probabilities come along.
    pub logprobs: Option<Logprobs>,
    /// Whose prefix-cache pages it may take: those of requests with the same salt.
    pub cache_salt: Option<Arc<str>>,
}

/// Requests that were asked together, and what comes of them.
#[derive(Debug)]
pub struct Call {
    client: Client,
    events: UnboundedReceiver<Event>,
    /// Came while others were waited for.
    early: VecDeque<Event>,
    /// By choice: the request, while it is not over.
    open: Vec<Option<RequestId>>,
}

impl Client {
    pub(crate) fn new(router: Arc<Router>, sender: Sender, clock: WallClock) -> Self {
        Self { router, sender, clock }
    }

    /// What the engine counts.
    pub fn metrics(&self) -> &Metrics {
        &self.router.metrics
    }

    /// Requests that may wait or run at once; a call with more is never taken.
    pub fn limit(&self) -> usize {
        self.router.limit
    }

    /// Requests that wait or run.
    pub fn open(&self) -> usize {
        self.router.open()
    }

    /// Sends requests to the engine, all or none.
    ///
    /// # Errors
    /// Too many are on their way, or the engine has ended.
    pub fn call(&self, asked: Vec<Asked>) -> Result<Call, Unavailable> {
        let (sender, events) = unbounded_channel();
        let arrival = self.clock.now();
        let ids = self.router.enter(asked.iter().map(|asked| asked.max_tokens), &sender, arrival)?;
        let early = VecDeque::new();
        let call = Call { client: self.clone(), events, early, open: ids.iter().copied().map(Some).collect() };
        for (id, asked) in ids.into_iter().zip(asked) {
            let prompt_tokens = asked.prompt.len() as u32;
            let request = Request { id, arrival, prompt_tokens, max_output_tokens: asked.max_tokens };
            let submission = Submission {
                arrival: Arrival { request, output_tokens: asked.max_tokens, cancel_after: None },
                prompt: Some(asked.prompt),
                pieces: None,
                cache_salt: asked.cache_salt,
                sampling: Some(asked.sampling),
                exit: asked.exit,
                ends: asked.ends,
                logprobs: asked.logprobs,
            };
            // An engine that has just ended has told, or will tell, everyone in the map.
            let _ = self.sender.send(Message::Submit(submission));
        }
        Ok(call)
    }
}

/// Why a call is over before it has begun.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RefusedCall {
    /// One of its requests can never be served.
    #[error("{0}")]
    Refused(Refused),
    /// The engine could not go on.
    #[error("{0}")]
    Failed(String),
}

impl Call {
    /// Waits until the engine has taken every request.
    ///
    /// # Errors
    /// It has refused one, or ended.
    pub async fn accepted(&mut self) -> Result<(), RefusedCall> {
        let mut left = self.open.len();
        while left > 0 {
            let Some(event) = self.events.recv().await else { return Ok(()) };
            match event.what {
                What::Accepted => left -= 1,
                What::Refused(reason) => return Err(RefusedCall::Refused(reason)),
                What::Failed(reason) => return Err(RefusedCall::Failed(reason)),
                What::Prompt(_) | What::Token(_) => self.early.push_back(event),
            }
        }
        Ok(())
    }

    /// What happens next; `None` once every request is over.
    pub async fn next(&mut self) -> Option<Event> {
        loop {
            if self.open.iter().all(Option::is_none) {
                return None;
            }
            let event = match self.early.pop_front() {
                Some(event) => event,
                None => self.events.recv().await?,
            };
            // What was on its way when a request was stopped is for nobody.
            if self.open[event.choice].is_none() {
                continue;
            }
            let over = match &event.what {
                What::Refused(_) | What::Failed(_) => true,
                What::Token(token) => token.last.is_some(),
                What::Accepted | What::Prompt(_) => false,
            };
            if over {
                self.open[event.choice] = None;
            }
            return Some(event);
        }
    }

    /// Ends a request that has all it needs.
    pub fn stop(&mut self, choice: usize) {
        self.leave(choice, Over::Stop);
    }

    fn leave(&mut self, choice: usize, why: Over) {
        if let Some(request) = self.open[choice].take()
            && self.client.router.leave(request, why)
        {
            // An engine that has ended has nothing to cancel.
            let _ = self.client.sender.send(Message::Cancel(request));
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        (0..self.open.len()).for_each(|choice| self.leave(choice, Over::Cancelled));
    }
}
