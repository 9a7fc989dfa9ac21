//! A closed loop: clients that wait for an answer, think, and only then send again.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::inbox::{Inbox, Message, Next, Replay};
use crate::submission::Submission;
use crate::units::Nanos;

/// Clients with one request each at a time. Whoever hears of the ends of requests tells them.
#[derive(Debug)]
pub struct Clients {
    think: Nanos,
    /// When those send next who wait for no answer.
    due: RefCell<BinaryHeap<Reverse<Nanos>>>,
}

/// What they send: submissions in order, each by the client that is the first to be ready.
#[derive(Debug)]
pub struct ClosedLoop<'a, I> {
    clients: &'a Clients,
    replay: Replay<I>,
}

impl Clients {
    /// `concurrency` clients that all send at time zero and who think for `think` after every answer.
    pub fn new(concurrency: u32, think: Nanos) -> Self {
        let due = (0..concurrency).map(|_| Reverse(Nanos::ZERO)).collect();
        Self { think, due: RefCell::new(due) }
    }

    /// A request was over at `at`: finished, refused, failed or cancelled.
    pub fn answered(&self, at: Nanos) {
        self.due.borrow_mut().push(Reverse(at + self.think));
    }

    /// The inbox of what they send. The submissions' own arrivals count for nothing.
    pub fn send<I: Iterator<Item = Submission>>(&self, submissions: I) -> ClosedLoop<'_, I> {
        ClosedLoop { clients: self, replay: Replay::new(submissions) }
    }

    fn next(&self) -> Option<Nanos> {
        self.due.borrow().peek().map(|&Reverse(time)| time)
    }
}

impl<I: Iterator<Item = Submission>> Inbox for ClosedLoop<'_, I> {
    fn poll(&mut self, now: Nanos) -> Option<Message> {
        self.replay.arrives_at(self.clients.next());
        let message = self.replay.poll(now)?;
        if matches!(message, Message::Submit(_)) {
            self.clients.due.borrow_mut().pop();
        }
        Some(message)
    }

    fn next(&mut self) -> Next {
        self.replay.arrives_at(self.clients.next());
        self.replay.next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inbox::Message;
    use crate::request::{Arrival, Request, RequestId};

    fn submissions(count: u32, cancel_after: Option<Nanos>) -> impl Iterator<Item = Submission> {
        (0..count).map(move |id| {
            let request = Request { id: RequestId(id), arrival: Nanos::ZERO, prompt_tokens: 1, max_output_tokens: 1 };
            Arrival { request, output_tokens: 1, cancel_after }.into()
        })
    }

    /// What comes until `now`: (request, its arrival), or a cancelled request.
    fn poll(inbox: &mut dyn Inbox, now: u64) -> Vec<(u32, Option<u64>)> {
        std::iter::from_fn(|| inbox.poll(Nanos(now)))
            .map(|message| match message {
                Message::Submit(Submission { arrival, .. }) => (arrival.request.id.0, Some(arrival.request.arrival.0)),
                Message::Cancel(request) => (request.0, None),
            })
            .collect()
    }

    #[test]
    fn a_client_sends_when_it_has_thought_about_its_last_answer() {
        let clients = Clients::new(2, Nanos(10));
        let mut inbox = clients.send(submissions(4, None));
        assert_eq!(poll(&mut inbox, 0), [(0, Some(0)), (1, Some(0))]);
        assert_eq!(inbox.next(), Next::Never, "both wait for an answer");
        clients.answered(Nanos(30));
        clients.answered(Nanos(25));
        assert_eq!(inbox.next(), Next::At(Nanos(35)));
        assert_eq!(poll(&mut inbox, 34), []);
        assert_eq!(poll(&mut inbox, 50), [(2, Some(35)), (3, Some(40))]);
        clients.answered(Nanos(60));
        assert_eq!(inbox.next(), Next::Never, "all were sent");
        assert_eq!(poll(&mut inbox, 100), []);
    }

    #[test]
    fn who_gives_up_does_so_so_long_after_it_sent() {
        let clients = Clients::new(1, Nanos(0));
        let mut inbox = clients.send(submissions(2, Some(Nanos(7))));
        assert_eq!(poll(&mut inbox, 3), [(0, Some(0))]);
        assert_eq!(inbox.next(), Next::At(Nanos(7)));
        assert_eq!(poll(&mut inbox, 8), [(0, None)]);
        clients.answered(Nanos(8));
        assert_eq!(poll(&mut inbox, 9), [(1, Some(8))]);
        assert_eq!(inbox.next(), Next::At(Nanos(15)));
    }
}
