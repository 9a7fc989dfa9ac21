//! What a workload's rows look like in numbers.

use engine::units::{Depth, Nanos};

use crate::exits::replay::RecordedExits;
use crate::file::Rows;

/// Requests that arrive within so many nanoseconds make a peak.
const PEAK_WINDOW: Nanos = Nanos(60_000_000_000);

/// Figures of a workload file.
#[derive(Clone, Debug, PartialEq)]
pub struct Statistics {
    /// Prompt lengths, in tokens.
    pub prompt: Sorted,
    /// Output lengths, in tokens.
    pub output: Sorted,
    /// Prompt and output together.
    pub total: Sorted,
    /// Pearson's correlation of prompt and output length; `None` if either is constant.
    pub pearson: Option<f64>,
    /// Spearman's, which is Pearson's of the ranks.
    pub spearman: Option<f64>,
    /// Arrivals, if the file has them.
    pub arrivals: Option<ArrivalStatistics>,
    /// Exit depths, if the file has them and any token is decoded.
    pub exits: Option<ExitStatistics>,
}

/// Figures of arrivals.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ArrivalStatistics {
    /// From the first to the last.
    pub span_s: f64,
    /// Gaps over the span; `None` without a span.
    pub rate_per_s: Option<f64>,
    /// Standard deviation of the gaps over their mean: 1 for a Poisson process.
    pub gap_variation: Option<f64>,
    /// The most requests within any 60 s.
    pub busiest_minute: u32,
}

/// Figures of exit depths.
#[derive(Clone, Debug, PartialEq)]
pub struct ExitStatistics {
    /// Decoded tokens behind each first one, which prefill yields.
    pub tokens: u64,
    /// How many leave at each depth that occurs.
    pub counts: Vec<(Depth, u64)>,
    /// The mean depth.
    pub mean: f64,
    /// The mean depth of each request's first decoded token.
    pub first_token_mean: f64,
    /// Correlation of a token's depth with the depth of the token before it; `None` if depths are constant.
    pub correlation: Option<f64>,
}

impl Statistics {
    /// Figures of at least one row.
    pub fn of(rows: &Rows) -> Self {
        let pairs = &rows.lengths;
        let (prompts, outputs): (Vec<u32>, Vec<u32>) = pairs.iter().copied().unzip();
        let floats = |numbers: &[u32]| numbers.iter().map(|number| f64::from(*number)).collect::<Vec<_>>();
        Self {
            pearson: pearson(&floats(&prompts), &floats(&outputs)),
            spearman: pearson(&ranks(&prompts), &ranks(&outputs)),
            total: Sorted::new(pairs.iter().map(|(prompt, output)| prompt + output).collect()),
            prompt: Sorted::new(prompts),
            output: Sorted::new(outputs),
            arrivals: rows.arrivals.as_deref().map(ArrivalStatistics::of),
            exits: rows.exits.as_ref().and_then(ExitStatistics::of),
        }
    }
}

/// Numbers in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sorted(Vec<u32>);

impl Sorted {
    fn new(mut numbers: Vec<u32>) -> Self {
        numbers.sort_unstable();
        Self(numbers)
    }

    /// How many.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The mean.
    pub fn mean(&self) -> f64 {
        self.0.iter().map(|number| f64::from(*number)).sum::<f64>() / self.0.len() as f64
    }

    /// The smallest number that at least the share `q` of all numbers does not exceed (nearest rank).
    pub fn quantile(&self, q: f64) -> u32 {
        let rank = (q * self.0.len() as f64).ceil() as usize;
        self.0[rank.clamp(1, self.0.len()) - 1]
    }
}

impl ArrivalStatistics {
    fn of(arrivals: &[Nanos]) -> Self {
        let gaps: Vec<f64> = arrivals.windows(2).map(|pair| pair[1].saturating_sub(pair[0]).as_secs()).collect();
        let span_s: f64 = arrivals.last().map_or(0.0, |last| last.saturating_sub(arrivals[0]).as_secs());
        let mean_s = span_s / gaps.len().max(1) as f64;
        let variance = gaps.iter().map(|gap| (gap - mean_s).powi(2)).sum::<f64>() / gaps.len().max(1) as f64;
        let spread = span_s > 0.0;
        let (mut first, mut busiest) = (0, 0);
        for (last, arrival) in arrivals.iter().enumerate() {
            while arrival.saturating_sub(arrivals[first]) >= PEAK_WINDOW {
                first += 1;
            }
            busiest = busiest.max(last - first + 1);
        }
        Self {
            span_s,
            rate_per_s: spread.then(|| gaps.len() as f64 / span_s),
            gap_variation: spread.then(|| variance.sqrt() / mean_s),
            busiest_minute: busiest as u32,
        }
    }
}

impl ExitStatistics {
    fn of(exits: &RecordedExits) -> Option<Self> {
        let mut counts = [0u64; 256];
        let (mut before, mut after) = (Vec::new(), Vec::new());
        let (mut first_sum, mut firsts) = (0u64, 0u64);
        for depths in exits.iter() {
            if let Some(first) = depths.first() {
                first_sum += u64::from(first.0);
                firsts += 1;
            }
            depths.iter().for_each(|depth| counts[usize::from(depth.0)] += 1);
            before.extend(depths.iter().rev().skip(1).rev().map(|depth| f64::from(depth.0)));
            after.extend(depths.iter().skip(1).map(|depth| f64::from(depth.0)));
        }
        Some(Self {
            tokens: counts.iter().sum(),
            mean: exits.mean_depth()?,
            first_token_mean: first_sum as f64 / firsts as f64,
            correlation: pearson(&before, &after),
            counts: (0..=u8::MAX)
                .map(|depth| (Depth(depth), counts[usize::from(depth)]))
                .filter(|(_, n)| *n > 0)
                .collect(),
        })
    }
}

fn pearson(x: &[f64], y: &[f64]) -> Option<f64> {
    let mean = |numbers: &[f64]| numbers.iter().sum::<f64>() / numbers.len() as f64;
    let (mean_x, mean_y) = (mean(x), mean(y));
    let (mut xx, mut yy, mut xy) = (0.0, 0.0, 0.0);
    for (x, y) in x.iter().zip(y) {
        xx += (x - mean_x).powi(2);
        yy += (y - mean_y).powi(2);
        xy += (x - mean_x) * (y - mean_y);
    }
    (xx > 0.0 && yy > 0.0).then(|| xy / (xx * yy).sqrt())
}

/// Ranks from 1; equal numbers share the mean of theirs.
fn ranks(numbers: &[u32]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..numbers.len()).collect();
    order.sort_unstable_by_key(|&index| numbers[index]);
    let mut ranks = vec![0.0; numbers.len()];
    let mut first = 0;
    for equal in order.chunk_by(|&a, &b| numbers[a] == numbers[b]) {
        let rank = first as f64 + (equal.len() + 1) as f64 / 2.0;
        equal.iter().for_each(|&index| ranks[index] = rank);
        first += equal.len();
    }
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(lengths: &[(u32, u32)], arrivals_s: &[f64]) -> Rows {
        let arrivals = Some(arrivals_s.iter().map(|&time_s| Nanos::from_secs(time_s)).collect());
        Rows { lengths: lengths.to_vec(), arrivals, cancels: None, pieces: None, exits: None }
    }

    #[test]
    fn a_quantile_is_the_nearest_rank() {
        let numbers = Sorted::new(vec![40, 10, 30, 20]);
        let check = |q, expect| assert_eq!(numbers.quantile(q), expect, "{q}");
        check(0.0, 10);
        check(0.25, 10);
        check(0.26, 20);
        check(0.5, 20);
        check(0.99, 40);
        check(1.0, 40);
    }

    #[test]
    fn rank_correlation_sees_order_alone() {
        let statistics = Statistics::of(&rows(&[(1, 10), (2, 100), (3, 1000)], &[0.0; 3]));
        assert!((statistics.spearman.expect("varies") - 1.0).abs() < 1e-12);
        assert!(statistics.pearson.expect("varies") < 0.95);
        assert_eq!(ranks(&[5, 7, 5, 9]), [1.5, 3.0, 1.5, 4.0]);
        assert_eq!(Statistics::of(&rows(&[(1, 5), (2, 5)], &[0.0; 2])).pearson, None);
    }

    #[test]
    fn arrivals_have_a_rate_only_over_a_span() {
        let of = |times: &[f64]| Statistics::of(&rows(&vec![(1, 1); times.len()], times)).arrivals.expect("arrivals");
        let even = of(&[0.0, 30.0, 60.0, 90.0]);
        assert_eq!((even.span_s, even.busiest_minute), (90.0, 2));
        assert!(
            (even.rate_per_s.expect("a span") - 1.0 / 30.0).abs() < 1e-12 && even.gap_variation.expect("a span") < 1e-9
        );
        let offline = of(&[0.0, 0.0, 0.0]);
        assert_eq!((offline.rate_per_s, offline.gap_variation, offline.busiest_minute), (None, None, 3));
    }

    #[test]
    fn exits_are_counted_by_depth_and_compared_with_the_token_before() {
        let mut exits = RecordedExits::default();
        for depths in [&[4, 2, 2][..], &[], &[4, 2, 2]] {
            depths.iter().for_each(|depth| exits.push(Depth(*depth)));
            exits.end();
        }
        let statistics = ExitStatistics::of(&exits).expect("tokens");
        assert_eq!(statistics.counts, [(Depth(2), 4), (Depth(4), 2)]);
        assert_eq!((statistics.tokens, statistics.first_token_mean), (6, 4.0));
        assert!((statistics.mean - 8.0 / 3.0).abs() < 1e-12);
        assert_eq!(statistics.correlation, None);
        assert_eq!(ExitStatistics::of(&RecordedExits::default()), None);
    }
}
