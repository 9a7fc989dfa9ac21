//! Batches on their way: pinned buffers that they hold, and when the device ran them.

use super::device::{CudaDevice, Event};
use super::error::CudaError;
use super::memory::Pinned;
use super::scores::Piece;
use crate::units::Nanos;

/// Launched work.
#[derive(Debug)]
pub(super) struct InFlight {
    /// Rows whose signals are read back.
    pub(super) signals: usize,
    /// The rows that choose a token, in order.
    pub(super) drawn: Vec<usize>,
    pub(super) upload: Pinned,
    pub(super) readback: Option<Pinned>,
    pub(super) logits: Option<Pinned>,
    pub(super) scores: Vec<Piece>,
    pub(super) start: Event,
    pub(super) end: Event,
    /// Pinned KV that a restore reads.
    pub(super) held: Vec<Pinned>,
}

/// Pinned buffers that no batch holds: pinning memory is slow, so they are kept.
#[derive(Debug, Default)]
pub(super) struct Spare {
    buffers: Vec<Pinned>,
}

impl Spare {
    pub(super) fn take(&mut self, bytes: usize) -> Result<Pinned, CudaError> {
        match self.buffers.iter().position(|buffer| buffer.len() >= bytes && buffer.len() < 2 * bytes.max(64)) {
            Some(at) => Ok(self.buffers.swap_remove(at)),
            None => Pinned::new(bytes),
        }
    }

    pub(super) fn give(&mut self, buffer: Pinned) {
        self.buffers.push(buffer);
    }
}

/// What the executor did, beyond tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CudaStats {
    /// Decode steps that ran as one recorded graph.
    pub graph_launches: u64,
    /// Decode steps that were launched kernel by kernel, because no graph was recorded for them.
    pub eager_fallbacks: u64,
    /// Prefill, offload and restore batches, which are never graphs.
    pub eager_batches: u64,
    /// Copies from the device, at most one a batch (logits for comparisons and scores apart).
    pub readbacks: u64,
    /// Time with a batch on the device, uploads included.
    pub busy_ms: f64,
    /// Time between two batches.
    pub idle_ms: f64,
}

impl CudaStats {
    /// Share of the time from the first batch's start to the last one's end in which no batch was on the device.
    pub fn idle_share(&self) -> f64 {
        if self.busy_ms > 0.0 { self.idle_ms / (self.busy_ms + self.idle_ms) } else { 0.0 }
    }
}

/// The device's timeline in the clock's time: anchored at the first batch, then carried on by event times, which drift from the
/// clock by some microseconds a second. It is set back where it would be ahead.
#[derive(Debug, Default)]
pub(super) struct Timeline {
    last: Option<(Event, f64)>,
}

impl Timeline {
    /// Start and end of a batch whose events have passed. `now` is the clock's time, just after the end.
    pub(super) fn place(
        &mut self,
        (start, end): (&Event, Event),
        now: Nanos,
        stats: &mut CudaStats,
    ) -> Result<(Nanos, Nanos), CudaError> {
        let busy_ms = end.since_ms(start)?;
        stats.busy_ms += busy_ms;
        let started_ms = match &self.last {
            None => (now.as_millis() - busy_ms).max(0.0),
            Some((last, at_ms)) => {
                let gap_ms = start.since_ms(last)?.max(0.0);
                stats.idle_ms += gap_ms;
                at_ms + gap_ms
            }
        };
        let ahead_ms = (started_ms + busy_ms - now.as_millis()).max(0.0);
        let started_ms = (started_ms - ahead_ms).max(0.0);
        let ended_ms = started_ms + busy_ms;
        self.last = Some((end, ended_ms));
        let nanos = |ms: f64| Nanos((ms * 1e6).round() as u64);
        Ok((nanos(started_ms), nanos(ended_ms)))
    }
}

/// A pair of fresh events.
pub(super) fn events(device: &CudaDevice) -> Result<(Event, Event), CudaError> {
    Ok((device.event()?, device.event()?))
}
