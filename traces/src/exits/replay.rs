//! Recorded exit depths, one byte a token.

use engine::request::RequestId;
use engine::units::Depth;

/// The exit depths of a workload file: one byte per decoded token, and where each request's begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedExits {
    depths: Vec<Depth>,
    /// `starts[i]..starts[i + 1]` are request i's depths, its second output token first.
    starts: Vec<usize>,
}

impl Default for RecordedExits {
    /// No request.
    fn default() -> Self {
        Self { depths: Vec::new(), starts: vec![0] }
    }
}

impl RecordedExits {
    /// Appends one depth to the request that is being read.
    pub(crate) fn push(&mut self, depth: Depth) {
        self.depths.push(depth);
    }

    /// Appends a whole request: a depth per output token after the first.
    pub fn push_request(&mut self, depths: &[Depth]) {
        self.depths.extend_from_slice(depths);
        self.end_request();
    }

    /// Depths since the last `end_request`.
    pub(crate) fn pending(&self) -> usize {
        self.depths.len() - self.starts.last().copied().unwrap_or(0)
    }

    /// Ends the request that is being read.
    pub(crate) fn end_request(&mut self) {
        self.starts.push(self.depths.len());
    }

    /// All depths of a request, from its second output token on. Panics beyond the last request.
    #[inline]
    pub fn of(&self, request: RequestId) -> &[Depth] {
        let request = request.0 as usize;
        &self.depths[self.starts[request]..self.starts[request + 1]]
    }

    /// Exit depth of output token `token >= 1`. Panics beyond the recording.
    #[inline]
    pub fn depth(&self, request: RequestId, token: u32) -> Depth {
        self.of(request)[token as usize - 1]
    }

    /// All requests' depths, in order.
    pub fn requests(&self) -> impl Iterator<Item = &[Depth]> {
        self.starts.windows(2).map(|bounds| &self.depths[bounds[0]..bounds[1]])
    }

    /// The mean over all recorded tokens, in loops; `None` if there are none.
    pub fn mean_depth(&self) -> Option<f64> {
        let sum: u64 = self.depths.iter().map(|depth| u64::from(depth.0)).sum();
        (!self.depths.is_empty()).then(|| sum as f64 / self.depths.len() as f64)
    }
}
