//! Groups of requests that begin alike, as those behind one system prompt do.

use engine::content::{Piece, Text};
use engine::models::counter::{STRIDE, below, mix};
use engine::request::RequestId;

use crate::config::SharedPrefixes;
use crate::streams::{self, Purpose};

/// Who is in which group: a function of seed and request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prefixes {
    config: SharedPrefixes,
    key: u64,
}

impl Prefixes {
    pub(crate) fn new(config: SharedPrefixes, seed: u64) -> Self {
        Self { config, key: streams::key(seed, Purpose::Prefixes) }
    }

    /// What stands in front of a request's own prompt.
    pub(crate) fn of(&self, RequestId(request): RequestId) -> Option<Piece> {
        let drawn = mix(self.key.wrapping_add(u64::from(request).wrapping_mul(STRIDE)));
        let share = (drawn >> 11) as f64 / (1_u64 << 53) as f64;
        let group = below(mix(drawn), self.config.groups.get());
        let piece = Piece::start(Text::Written(group.into()), self.config.prefix_tokens.get());
        (share < self.config.share.get()).then_some(piece)
    }
}
