//! Where requests come from: a workload, or whoever sends them while the engine runs.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::request::{Arrival, RequestId};
use crate::submission::Submission;
use crate::units::Nanos;

/// What a client says.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// Serve this.
    Submit(Submission),
    /// Nobody waits for it any more.
    Cancel(RequestId),
}

/// When there may be another message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Not before this time.
    At(Nanos),
    /// At any time; whoever sends it wakes the clock.
    Whenever,
    /// All were taken.
    Never,
}

/// Messages in the order in which they come.
pub trait Inbox {
    /// The next message if its time has come.
    fn poll(&mut self, now: Nanos) -> Option<Message>;

    /// When to ask again.
    fn next(&mut self) -> Next;
}

/// A workload: requests at their arrivals, which are pulled one ahead, and cancellations.
#[derive(Debug)]
pub struct Replay<I> {
    rest: I,
    next: Option<Submission>,
    cancels: BinaryHeap<Reverse<(Nanos, RequestId)>>,
    /// Nobody is there to send the next request.
    held: bool,
}

impl<I: Iterator<Item = Submission>> Replay<I> {
    /// Replays submissions in order of arrival.
    pub fn new(mut submissions: I) -> Self {
        Self { next: submissions.next(), rest: submissions, cancels: BinaryHeap::new(), held: false }
    }
}

impl<I> Replay<I> {
    /// Sets when the next request arrives; `None`: not before this is said again.
    pub(crate) fn arrives_at(&mut self, time: Option<Nanos>) {
        self.held = time.is_none();
        if let (Some(next), Some(time)) = (&mut self.next, time) {
            next.arrival.request.arrival = time;
        }
    }

    fn arrives(&self) -> Option<Nanos> {
        self.next.as_ref().filter(|_| !self.held).map(|next| next.arrival.request.arrival)
    }
}

/// Replays arrivals, in order, that ask for nothing special.
pub fn replay(arrivals: impl IntoIterator<Item = Arrival>) -> Replay<impl Iterator<Item = Submission>> {
    Replay::new(arrivals.into_iter().map(Submission::from))
}

impl<I: Iterator<Item = Submission>> Inbox for Replay<I> {
    fn poll(&mut self, now: Nanos) -> Option<Message> {
        let arrives = self.arrives();
        if let Some(&Reverse((time, request))) = self.cancels.peek()
            && time <= now
            && arrives.is_none_or(|arrives| time < arrives)
        {
            self.cancels.pop();
            return Some(Message::Cancel(request));
        }
        arrives.filter(|&arrives| arrives <= now)?;
        let submission = std::mem::replace(&mut self.next, self.rest.next())?;
        let Arrival { request, cancel_after, .. } = submission.arrival;
        self.cancels.extend(cancel_after.map(|after| Reverse((request.arrival + after, request.id))));
        Some(Message::Submit(submission))
    }

    fn next(&mut self) -> Next {
        let arrives = self.arrives();
        let cancels = self.cancels.peek().map(|&Reverse((time, _))| time);
        match arrives.into_iter().chain(cancels).min() {
            Some(time) => Next::At(time),
            None => Next::Never,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Request;

    #[test]
    fn a_replay_gives_arrivals_and_cancellations_in_order_of_time() {
        let arrival = |id, at, cancel_after: Option<u64>| Arrival {
            request: Request { id: RequestId(id), arrival: Nanos(at), prompt_tokens: 1, max_output_tokens: 1 },
            output_tokens: 1,
            cancel_after: cancel_after.map(Nanos),
        };
        let mut inbox = replay([arrival(0, 0, Some(50)), arrival(1, 10, Some(5)), arrival(2, 15, None)]);
        let mut log = Vec::new();
        while let Next::At(time) = inbox.next() {
            while let Some(message) = inbox.poll(time) {
                log.push(match message {
                    Message::Submit(submission) => (time.0, "submit", submission.arrival.request.id.0),
                    Message::Cancel(RequestId(request)) => (time.0, "cancel", request),
                });
            }
        }
        let expected = [(0, "submit", 0), (10, "submit", 1), (15, "submit", 2), (15, "cancel", 1), (50, "cancel", 0)];
        assert_eq!(log, expected);
        assert_eq!(inbox.next(), Next::Never);
    }
}
