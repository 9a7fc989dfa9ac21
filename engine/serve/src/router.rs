//! From the engine's one thread to whoever asked: one map from requests to the calls that wait for them.
//!
//! Invariant: the engine never waits for a client. What it tells a call is queued without a bound, since a request has at
//! most `max_tokens` tokens, each of some dozens of bytes; a client that does not read is cut off by the connection.
//!
//! Invariant: a number is not given to two requests that the engine knows. Numbers count up, leave out those in the map and
//! the one that the scheduler keeps for free slots, and begin again after four billion requests; a request leaves the engine
//! within a few batches of leaving the map.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use engine::batch::Scored;
use engine::event_loop::Refused;
use engine::request::RequestId;
use engine::units::{Depth, Nanos};
use tokio::sync::mpsc::UnboundedSender;

use crate::metrics::{Metrics, Over};

/// What a call hears of one of its requests.
#[derive(Clone, Debug)]
pub struct Event {
    /// Which of the call's requests, from 0.
    pub choice: usize,
    /// What happened.
    pub what: What,
}

/// What can happen to a request.
#[derive(Clone, Debug)]
pub enum What {
    /// It waits for a slot, or runs.
    Accepted,
    /// It can never be served; nothing follows.
    Refused(Refused),
    /// How probable one of its prompt's tokens was, in order of positions.
    Prompt(Scored),
    /// Its next token.
    Token(Token),
    /// It can not go on; nothing follows.
    Failed(String),
}

/// An output token.
#[derive(Clone, Debug)]
pub struct Token {
    /// Its id.
    pub id: u32,
    /// The loops that it took.
    pub depth: Depth,
    /// How probable it was, if that was asked for.
    pub score: Option<Scored>,
    /// Why it is the last; nothing follows then.
    pub last: Option<Last>,
}

/// Why a token is a request's last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Last {
    /// It is an end token.
    Stop,
    /// The request has all its tokens.
    Length,
}

/// Why a call is not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what the fields are")]
pub enum Unavailable {
    /// Too many requests are on their way.
    #[error("{open} requests are on their way, and at most {limit} may be: try again later")]
    Full { open: usize, limit: usize },
    /// The engine has ended.
    #[error("the engine has ended: {0}")]
    Ended(String),
}

/// The map.
#[derive(Debug)]
pub struct Router {
    open: Mutex<Open>,
    /// Requests that may wait or run at once.
    pub limit: usize,
    /// What is counted when a request is over.
    pub metrics: Arc<Metrics>,
}

#[derive(Debug, Default)]
struct Open {
    requests: BTreeMap<RequestId, Waiting>,
    next: u32,
    /// Why nothing is served any more.
    ended: Option<String>,
}

/// A request that is not over.
#[derive(Debug)]
pub struct Waiting {
    sender: UnboundedSender<Event>,
    choice: usize,
    max_tokens: u32,
    /// When it arrived, and when its last token was told.
    pub(crate) arrived: Nanos,
    pub(crate) told: Option<Nanos>,
}

impl Waiting {
    /// A call hears nothing more once it is dropped, which is no matter to the engine.
    pub(crate) fn tell(&self, what: What) {
        let _ = self.sender.send(Event { choice: self.choice, what });
    }

    /// Whether output token number `index` fills the request.
    pub(crate) fn is_full_at(&self, index: u32) -> bool {
        index + 1 >= self.max_tokens
    }
}

impl Router {
    /// Nothing is on its way, and at most `limit` requests may be.
    pub fn new(limit: usize, metrics: Arc<Metrics>) -> Self {
        Self { open: Mutex::default(), limit, metrics }
    }

    /// Requests that wait or run.
    pub fn open(&self) -> usize {
        self.lock().requests.len()
    }

    /// Gives a number to each of a call's requests, which have the given limits of tokens, or takes none of them.
    pub(crate) fn enter(
        &self,
        max_tokens: impl ExactSizeIterator<Item = u32>,
        sender: &UnboundedSender<Event>,
        arrived: Nanos,
    ) -> Result<Vec<RequestId>, Unavailable> {
        let mut open = self.lock();
        if let Some(reason) = &open.ended {
            return Err(Unavailable::Ended(reason.clone()));
        }
        if open.requests.len() + max_tokens.len() > self.limit {
            self.metrics.overloaded(max_tokens.len());
            return Err(Unavailable::Full { open: open.requests.len(), limit: self.limit });
        }
        let enter = |(choice, max_tokens)| {
            let id = open.number();
            let waiting = Waiting { sender: sender.clone(), choice, max_tokens, arrived, told: None };
            open.requests.insert(id, waiting);
            id
        };
        Ok(max_tokens.enumerate().map(enter).collect())
    }

    /// Takes a request out, and says whether it was not over.
    pub(crate) fn leave(&self, request: RequestId, why: Over) -> bool {
        let mut open = self.lock();
        let left = open.requests.remove(&request).is_some();
        if left {
            self.metrics.over(why);
        }
        left
    }

    /// The requests that are not over, to tell them something.
    pub(crate) fn requests(&self) -> Requests<'_> {
        Requests { open: self.lock(), metrics: &self.metrics }
    }

    /// Tells everyone that the engine has ended, and everyone who asks from now on.
    pub(crate) fn end(&self, reason: &str) {
        let mut open = self.lock();
        open.ended = Some(reason.to_owned());
        for waiting in std::mem::take(&mut open.requests).into_values() {
            self.metrics.over(Over::Failed);
            waiting.tell(What::Failed(reason.to_owned()));
        }
    }

    /// Numbers are given as if `next` were the next.
    #[cfg(test)]
    pub(crate) fn count_from(&self, next: u32) {
        self.lock().next = next;
    }

    /// A panic of the engine leaves the map whole: every change of it is one call.
    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    /// The next number that is free. The last one is the scheduler's own.
    fn number(&mut self) -> RequestId {
        loop {
            let id = RequestId(self.next);
            self.next = self.next.wrapping_add(1);
            if id.0 != u32::MAX && !self.requests.contains_key(&id) {
                return id;
            }
        }
    }
}

/// The map, while it is held.
pub(crate) struct Requests<'a> {
    open: MutexGuard<'a, Open>,
    metrics: &'a Metrics,
}

impl Requests<'_> {
    pub(crate) fn get(&mut self, request: RequestId) -> Option<&mut Waiting> {
        self.open.requests.get_mut(&request)
    }

    /// Tells a request its last, once it is counted: whoever has heard finds it in the metrics.
    pub(crate) fn end(&mut self, request: RequestId, what: What, why: Over) {
        if let Some(waiting) = self.open.requests.remove(&request) {
            self.metrics.over(why);
            waiting.tell(what);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc::unbounded_channel;

    use super::*;

    fn router(limit: usize) -> Router {
        Router::new(limit, Arc::new(Metrics::new(4, 1)))
    }

    fn enter(router: &Router, requests: usize) -> Result<Vec<u32>, Unavailable> {
        let (sender, _) = unbounded_channel();
        let ids = router.enter(vec![1; requests].into_iter(), &sender, Nanos::ZERO)?;
        Ok(ids.into_iter().map(|id| id.0).collect())
    }

    #[test]
    fn numbers_begin_again_without_those_that_are_taken() {
        let router = router(10);
        assert_eq!(enter(&router, 2), Ok(vec![0, 1]));
        router.leave(RequestId(0), Over::Cancelled);
        router.count_from(u32::MAX - 1);
        assert_eq!(enter(&router, 3), Ok(vec![u32::MAX - 1, 0, 2]), "the last is the scheduler's, 1 is on its way");
    }

    #[test]
    fn a_call_that_does_not_fit_is_not_taken_in_part() {
        let router = router(3);
        assert_eq!(enter(&router, 2), Ok(vec![0, 1]));
        assert_eq!(enter(&router, 2), Err(Unavailable::Full { open: 2, limit: 3 }));
        assert_eq!(enter(&router, 1), Ok(vec![2]));
    }

    #[test]
    fn whoever_waits_when_the_engine_ends_is_told_and_whoever_comes_later_too() {
        let router = router(3);
        let (sender, mut receiver) = unbounded_channel();
        router.enter([5].into_iter(), &sender, Nanos::ZERO).unwrap();
        router.end("it fell over");
        assert!(matches!(receiver.try_recv().unwrap().what, What::Failed(reason) if reason == "it fell over"));
        assert_eq!(enter(&router, 1), Err(Unavailable::Ended("it fell over".into())));
    }
}
