//! When the coda runs, if no fixed K says so (`docs/adaptive.md`).
//!
//! A call of coda and prelude costs time beyond its rows' own: weights are loaded, rows are padded. So does a core step.
//! Waiting for more exits spreads the first over more rows and the second over fewer. Which K balances the two depends on
//! the costs, on how many sequences are resident and on where tokens exit. The scheduler knows the first two and has seen
//! the third: it plays every K forward on the exits that it saw last, and takes the one that wastes least.

use super::StageCosts;
use crate::units::Depth;

/// Exits that are remembered: the share of a depth is known to a few percent.
const REMEMBERED: usize = 1024;

/// How often each slot is refilled when a K is played forward; the first half lets the schedule settle.
const TURNS: u64 = 32;

/// Finds K; see the module's text.
#[derive(Clone, Debug)]
pub(super) struct CodaTiming {
    costs: StageCosts,
    r_max: Depth,
    /// The last exit depths, oldest overwritten.
    seen: Vec<Depth>,
    oldest: usize,
    /// Exits since K was chosen.
    since: u64,
    chosen: Option<Chosen>,
}

/// A K, and how many sequences were resident when it was chosen.
#[derive(Clone, Copy, Debug)]
struct Chosen {
    residents: u32,
    k: u32,
}

impl CodaTiming {
    pub(super) fn new(costs: StageCosts, r_max: Depth) -> Self {
        Self { costs, r_max, seen: Vec::with_capacity(REMEMBERED), oldest: 0, since: 0, chosen: None }
    }

    /// Remembers where a row left the loop.
    pub(super) fn exited(&mut self, depth: Depth) {
        self.since += 1;
        if self.seen.len() < REMEMBERED {
            self.seen.push(depth);
        } else {
            self.seen[self.oldest] = depth;
            self.oldest = (self.oldest + 1) % REMEMBERED;
        }
    }

    /// Chooses K anew if it could differ, with `residents` sequences in the loop or waiting for the coda.
    pub(super) fn review(&mut self, residents: u32) {
        if self.seen.is_empty() || !self.is_stale(residents) {
            return;
        }
        let played = thresholds(residents).map(|k| (k, self.waste_per_row(residents, k)));
        let best = played.min_by(|one, other| one.1.total_cmp(&other.1));
        self.chosen = best.map(|(k, _)| Chosen { residents, k });
        self.since = 0;
    }

    /// Half or twice as many sequences are resident, or enough exits were seen: half as many again while few are known,
    /// later as many as are remembered and as playing a K forward takes, so that choosing costs little per token.
    fn is_stale(&self, residents: u32) -> bool {
        let enough = if self.seen.len() < REMEMBERED {
            self.seen.len() as u64 / 2
        } else {
            (REMEMBERED as u64).max(TURNS * u64::from(residents))
        };
        let alike = |chosen: Chosen| residents > chosen.residents / 2 && residents / 2 < chosen.residents;
        self.since >= enough || !self.chosen.is_some_and(alike)
    }

    /// Whether `gathered` of `residents` sequences are enough.
    pub(super) fn due(&self, gathered: u32, residents: u32) -> bool {
        self.chosen.is_some_and(|Chosen { residents: then, k }| {
            // K moves with the residents, so that "all of them" stays all of them.
            u64::from(gathered) * u64::from(then) >= u64::from(k) * u64::from(residents)
        })
    }

    /// Milliseconds per core row that go beyond the rows' own time when the coda waits for `k` of `residents` rows.
    fn waste_per_row(&self, residents: u32, k: u32) -> f64 {
        let steps = usize::from(self.r_max.0) + 1;
        let mut leaving = vec![0_u32; steps];
        let (mut looping, mut gathered) = (0, residents);
        let (mut waste_ms, mut rows) = (0.0, 0_u64);
        let (mut started, mut now) = (0_u64, 0);
        let total = u64::from(residents) * TURNS;
        while started < total {
            let counts = 2 * started >= total;
            if gathered >= k || looping == 0 {
                waste_ms += if counts { self.costs.boundary_waste_ms(gathered) } else { 0.0 };
                for _ in 0..gathered {
                    leaving[(now + usize::from(self.drawn(started).0)) % steps] += 1;
                    started += 1;
                }
                looping += std::mem::take(&mut gathered);
            }
            if counts {
                waste_ms += self.costs.core_waste_ms(looping);
                rows += u64::from(looping);
            }
            now = (now + 1) % steps;
            let left = std::mem::take(&mut leaving[now]);
            looping -= left;
            gathered += left;
        }
        waste_ms / rows as f64
    }

    /// A remembered depth, in an order that has nothing to do with the one in which they came: successive multiples of the
    /// golden ratio spread evenly.
    fn drawn(&self, index: u64) -> Depth {
        let spread = (index as u32).wrapping_mul(0x9E37_79B9);
        self.seen[((u64::from(spread) * self.seen.len() as u64) >> 32) as usize]
    }
}

/// Every K worth trying: all residents, three quarters, a half, three eighths and so on down to one.
fn thresholds(residents: u32) -> impl Iterator<Item = u32> {
    let halves = (0..32).map(move |e| (residents >> e).max(1));
    let between = (0..32).map(move |e| ((residents - residents / 4) >> e).max(1));
    let mut all: Vec<u32> = halves.chain(between).collect();
    all.sort_unstable();
    all.dedup();
    all.into_iter()
}
