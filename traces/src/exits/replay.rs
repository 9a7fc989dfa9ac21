//! Recorded exit depths, one byte a token.

use engine::request::RequestId;
use engine::units::Depth;

use crate::lists::Lists;

/// The exit depths of a workload file: one byte per decoded token, by request, its second output token first.
pub type RecordedExits = Lists<Depth>;

impl RecordedExits {
    /// Exit depth of output token `token >= 1`. Panics beyond the recording.
    #[inline]
    pub fn depth(&self, request: RequestId, token: u32) -> Depth {
        self.of(request.0 as usize)[token as usize - 1]
    }

    /// The mean over all recorded tokens, in loops; `None` if there are none.
    pub fn mean_depth(&self) -> Option<f64> {
        let sum: u64 = self.items().iter().map(|depth| u64::from(depth.0)).sum();
        (!self.items().is_empty()).then(|| sum as f64 / self.items().len() as f64)
    }
}
