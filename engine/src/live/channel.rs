//! An inbox for requests that come from other threads while the engine runs.

use std::sync::mpsc::{self, Receiver, SendError, TryRecvError};

use super::wall_clock::Waker;
use crate::inbox::{Inbox, Message, Next};
use crate::units::Nanos;

/// Messages from other threads; over when every [`Sender`] is gone.
#[derive(Debug)]
pub struct Channel {
    receiver: Receiver<Message>,
    /// Taken already, while looking whether there is one.
    taken: Option<Message>,
    closed: bool,
}

/// The other end of a [`Channel`].
#[derive(Clone, Debug)]
pub struct Sender {
    /// Gone before the waker is rung for the last time, so that the engine finds the channel closed.
    sender: Option<mpsc::Sender<Message>>,
    waker: Waker,
}

/// A channel whose messages wake a clock.
pub fn channel(waker: Waker) -> (Sender, Channel) {
    let (sender, receiver) = mpsc::channel();
    (Sender { sender: Some(sender), waker }, Channel { receiver, taken: None, closed: false })
}

impl Sender {
    /// Sends a message; its arrival should be the engine clock's time now.
    ///
    /// # Errors
    /// The engine is gone; gives the message back.
    #[expect(clippy::result_large_err, reason = "what could not be sent comes back, as from the standard channels")]
    pub fn send(&self, message: Message) -> Result<(), Message> {
        let sender = self.sender.as_ref().expect("it is there until it is dropped");
        sender.send(message).map_err(|SendError(message)| message)?;
        self.waker.wake();
        Ok(())
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.sender = None;
        self.waker.wake();
    }
}

impl Channel {
    fn look(&mut self) {
        if self.taken.is_none() {
            match self.receiver.try_recv() {
                Ok(message) => self.taken = Some(message),
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => self.closed = true,
            }
        }
    }
}

impl Inbox for Channel {
    fn poll(&mut self, _: Nanos) -> Option<Message> {
        self.look();
        self.taken.take()
    }

    fn next(&mut self) -> Next {
        self.look();
        match (&self.taken, self.closed) {
            (Some(_), _) => Next::At(Nanos::ZERO),
            (None, false) => Next::Whenever,
            (None, true) => Next::Never,
        }
    }
}
