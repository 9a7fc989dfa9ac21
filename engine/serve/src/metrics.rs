//! What the server counts, as Prometheus reads it.
//!
//! Times are the engine's: a first token is late by as much as it took from its request's arrival to the end of the batch
//! that made it.

use std::fmt::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};

use engine::batch::Stage;
use engine::scheduler::{Queues, Reuse};
use engine::units::{Depth, Nanos};

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// By an end token or a stop string.
    Stop,
    /// With all the tokens that it asked for.
    Length,
    /// Its client went away.
    Cancelled,
    /// The model's numbers ran out of range for it, or the engine ended.
    Failed,
    /// It can never be served.
    Refused,
    /// Too many were on their way.
    Overload,
}

impl Over {
    const ALL: [(Self, &str); 6] = [
        (Self::Stop, "stop"),
        (Self::Length, "length"),
        (Self::Cancelled, "cancelled"),
        (Self::Failed, "failed"),
        (Self::Refused, "refused"),
        (Self::Overload, "overload"),
    ];
}

/// Upper ends of the histograms of times, in seconds.
const SECONDS: [f64; 16] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0];

/// Upper ends of the histograms of batch sizes, in rows.
const ROWS: [f64; 11] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0];

/// Everything that is counted.
#[derive(Debug)]
pub struct Metrics(Mutex<Figures>);

#[derive(Debug)]
struct Figures {
    over: [u64; Over::ALL.len()],
    prompt_tokens: u64,
    output_tokens: u64,
    queues: Queues,
    /// Tokens that admitted requests needed in the prefix cache, those that were there, and pages that were given up.
    prefix: [u64; 3],
    kv_blocks: u32,
    first_token: Histogram,
    between_tokens: Histogram,
    exit_depth: Histogram,
    rows: [Histogram; Stage::ALL.len()],
}

impl Metrics {
    /// Nothing yet, of a model of `r_max` loops and a pool of `kv_blocks`.
    pub fn new(r_max: u8, kv_blocks: u32) -> Self {
        Self(Mutex::new(Figures {
            over: [0; Over::ALL.len()],
            prompt_tokens: 0,
            output_tokens: 0,
            queues: Queues::default(),
            prefix: [0; 3],
            kv_blocks,
            first_token: Histogram::new(SECONDS.to_vec()),
            between_tokens: Histogram::new(SECONDS.to_vec()),
            exit_depth: Histogram::new((1..=r_max).map(f64::from).collect()),
            rows: std::array::from_fn(|_| Histogram::new(ROWS.to_vec())),
        }))
    }

    /// A request is over.
    pub(crate) fn over(&self, why: Over) {
        self.lock().over[why as usize] += 1;
    }

    /// So many requests were not taken.
    pub(crate) fn overloaded(&self, requests: usize) {
        self.lock().over[Over::Overload as usize] += requests as u64;
    }

    /// A request was taken.
    pub(crate) fn arrived(&self, prompt_tokens: u32) {
        self.lock().prompt_tokens += u64::from(prompt_tokens);
    }

    /// A batch ran.
    pub(crate) fn ran(&self, stage: Stage, rows: usize, queues: Queues) {
        let mut figures = self.lock();
        figures.rows[stage as usize].add(rows as f64);
        figures.queues = queues;
    }

    /// What the prefix cache did for a batch.
    pub(crate) fn reused(&self, reuse: Reuse) {
        let mut figures = self.lock();
        let counts = [reuse.prompt_tokens, reuse.hit_tokens, reuse.evicted_pages];
        figures.prefix.iter_mut().zip(counts).for_each(|(sum, count)| *sum += u64::from(count));
    }

    /// A token was made at a depth, so long after the one before it, or after its request's arrival.
    pub(crate) fn token(&self, depth: Depth, since: Nanos, first: bool) {
        let mut figures = self.lock();
        figures.output_tokens += 1;
        figures.exit_depth.add(f64::from(depth.0));
        let gap = if first { &mut figures.first_token } else { &mut figures.between_tokens };
        gap.add(since.as_secs());
    }

    /// Nothing waits or runs.
    pub(crate) fn idle(&self) {
        self.lock().queues = Queues::default();
    }

    /// Requests that ended so.
    pub fn count(&self, why: Over) -> u64 {
        self.lock().over[why as usize]
    }

    /// Requests with a slot, requests that wait for one, and KV blocks in use, as of the last batch.
    pub fn queues(&self) -> (u32, u32, u32) {
        let queues = self.lock().queues;
        (queues.resident, queues.prompt, queues.kv_used_blocks)
    }

    /// Prometheus's text, version 0.0.4.
    pub fn text(&self) -> String {
        let figures = self.lock();
        let mut text = Text(String::with_capacity(8192));
        text.header("requests_total", "counter", "Requests that are over, by how they ended.");
        for (why, name) in Over::ALL {
            text.sample("requests_total", &format!("outcome=\"{name}\""), figures.over[why as usize] as f64);
        }
        let queues = figures.queues;
        let [needed, found, evicted] = figures.prefix.map(|count| count as f64);
        for (name, kind, help, value) in [
            ("prompt_tokens_total", "counter", "Tokens of accepted prompts.", figures.prompt_tokens as f64),
            ("output_tokens_total", "counter", "Tokens made.", figures.output_tokens as f64),
            ("requests_running", "gauge", "Requests with a slot.", f64::from(queues.resident)),
            ("requests_waiting", "gauge", "Requests that wait for a slot.", f64::from(queues.prompt)),
            ("kv_blocks_used", "gauge", "KV blocks in use, all planes.", f64::from(queues.kv_used_blocks)),
            ("kv_blocks", "gauge", "KV blocks there are, all planes.", f64::from(figures.kv_blocks)),
            ("prefix_prompt_tokens_total", "counter", "Tokens that admitted requests needed in the KV cache.", needed),
            ("prefix_hit_tokens_total", "counter", "Those of them that the prefix cache had.", found),
            ("prefix_evicted_pages_total", "counter", "Pages of the prefix cache given up for others.", evicted),
        ] {
            text.header(name, kind, help);
            text.sample(name, "", value);
        }
        for (name, help, histogram) in [
            ("time_to_first_token_seconds", "From a request's arrival to its first token.", &figures.first_token),
            ("inter_token_latency_seconds", "From one token of a request to the next.", &figures.between_tokens),
            ("exit_depth", "Loops that an output token took.", &figures.exit_depth),
        ] {
            text.header(name, "histogram", help);
            text.histogram(name, "", histogram);
        }
        text.header("batch_rows", "histogram", "Rows of a batch, by stage.");
        for (stage, histogram) in Stage::ALL.iter().zip(&figures.rows).filter(|(_, rows)| rows.count() > 0) {
            text.histogram("batch_rows", &format!("stage=\"{}\"", stage.name()), histogram);
        }
        text.0
    }

    fn lock(&self) -> MutexGuard<'_, Figures> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Values by size.
#[derive(Debug)]
struct Histogram {
    /// Upper ends, ascending.
    bounds: Vec<f64>,
    /// Values up to each end and above the one before it; one entry more, for those above all.
    counts: Vec<u64>,
    sum: f64,
}

impl Histogram {
    fn new(bounds: Vec<f64>) -> Self {
        Self { counts: vec![0; bounds.len() + 1], bounds, sum: 0.0 }
    }

    fn add(&mut self, value: f64) {
        self.counts[self.bounds.partition_point(|&bound| bound < value)] += 1;
        self.sum += value;
    }

    fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

/// Lines of Prometheus's text; every name gets the program's prefix.
struct Text(String);

impl Text {
    fn header(&mut self, name: &str, kind: &str, help: &str) {
        let _ = write!(self.0, "# HELP loopbatch_{name} {help}\n# TYPE loopbatch_{name} {kind}\n");
    }

    fn sample(&mut self, name: &str, labels: &str, value: f64) {
        let labels = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
        let _ = writeln!(self.0, "loopbatch_{name}{labels} {value}");
    }

    fn histogram(&mut self, name: &str, labels: &str, histogram: &Histogram) {
        let comma = if labels.is_empty() { "" } else { "," };
        let ends = histogram.bounds.iter().map(f64::to_string).chain(["+Inf".into()]);
        let mut below = 0;
        for (end, count) in ends.zip(&histogram.counts) {
            below += count;
            self.sample(&format!("{name}_bucket"), &format!("{labels}{comma}le=\"{end}\""), below as f64);
        }
        self.sample(&format!("{name}_sum"), labels, histogram.sum);
        self.sample(&format!("{name}_count"), labels, below as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histograms_are_cumulative_and_counters_are_by_outcome() {
        let metrics = Metrics::new(2, 96);
        metrics.over(Over::Length);
        metrics.overloaded(3);
        metrics.token(Depth(1), Nanos(2_000_000), true);
        metrics.token(Depth(2), Nanos(900_000_000_000), false);
        metrics.ran(Stage::Core, 3, Queues { resident: 3, ..Queues::default() });
        let text = metrics.text();
        for line in [
            "loopbatch_requests_total{outcome=\"length\"} 1",
            "loopbatch_requests_total{outcome=\"overload\"} 3",
            "loopbatch_requests_running 3",
            "loopbatch_kv_blocks 96",
            "loopbatch_exit_depth_bucket{le=\"1\"} 1",
            "loopbatch_exit_depth_bucket{le=\"2\"} 2",
            "loopbatch_exit_depth_count 2",
            "loopbatch_time_to_first_token_seconds_bucket{le=\"0.001\"} 0",
            "loopbatch_time_to_first_token_seconds_bucket{le=\"0.0025\"} 1",
            "loopbatch_inter_token_latency_seconds_bucket{le=\"300\"} 0",
            "loopbatch_inter_token_latency_seconds_bucket{le=\"+Inf\"} 1",
            "loopbatch_batch_rows_bucket{stage=\"core\",le=\"4\"} 1",
            "loopbatch_batch_rows_bucket{stage=\"core\",le=\"2\"} 0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
    }
}
