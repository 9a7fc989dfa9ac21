//! What every number means: one definition each, shown in the page and in the docs.

/// A metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Definition {
    /// Name in tables and plots.
    pub name: &'static str,
    /// Unit; empty for counts and ratios.
    pub unit: &'static str,
    /// What it is, with its formula.
    pub text: &'static str,
}

/// Declares the definitions and the list of all of them.
macro_rules! definitions {
    ($($constant:ident: $name:literal, $unit:literal, $text:literal;)*) => {
        $(
            #[doc = $text]
            pub const $constant: Definition = Definition { name: $name, unit: $unit, text: $text };
        )*

        /// Every metric, in the order of the tables.
        pub const ALL: &[Definition] = &[$($constant),*];
    };
}

definitions! {
    THROUGHPUT: "throughput", "tokens/s",
        "Output tokens delivered / makespan. The makespan runs from the first arrival of a request that is served to the end of the last step.";
    STEADY_THROUGHPUT: "steady throughput", "tokens/s",
        "Throughput while the system is full: from the completion of 2 W requests to the last time that a request gets its first slot (W: sequences that may be resident).";
    SPEEDUP: "speed-up", "×",
        "Throughput / throughput of full-depth continuous batching on the same requests. Online, where throughput is the arrival rate until the system saturates, it is the ratio of capacities.";
    STEADY_SPEEDUP: "steady speed-up", "×",
        "Speed-up by the throughputs in the steady windows.";
    S_DEC: "S_dec", "×",
        "Bound on the speed-up of decode, by FLOPs: (F_0 + r_max F_r) / (F_0 + d F_r). F counts the linear layers outside the loop (F_0) and in one loop (F_r); d is the mean exit depth of decoded tokens.";
    S_E2E: "S_e2e", "×",
        "Bound on the speed-up of the whole run, by the same FLOPs: 1 / (a + (1 - a) / S_dec). a is prefill's share of device time in the full-depth continuous-batching run of the same requests in the same overlap mode.";
    S_ROOF: "S_roof", "×",
        "Bound on the speed-up by bytes as well as FLOPs, offline: the time of full-depth continuous batching / the least time in which the profile's device could do this run's work (docs/bounds.md). What full depth loses to overheads and part-filled batches counts as something to gain.";
    REALISED_SHARE: "realised share", "%",
        "Speed-up / S_e2e. It can exceed 100% where other things than linear layers take the time: exits save KV reads in proportion to loops, which S_e2e does not count.";
    FLOOR_SPEEDUP: "speed-up at the floor", "×",
        "The speed-up of the same requests on the same device without any overhead (no launches, no host time).";
    FLOOR_SHARE: "realised share at the floor", "%",
        "Speed-up at the floor / S_e2e at the floor. What is missing here is missing to physics; what the realised share lacks beyond it is missing to overheads.";
    CAPACITY: "capacity", "requests/s",
        "The highest rate that is carried, where one within 1% above it is not; without such a pair there is none, but `at least`. Carried: `attainment` of all that arrive keep the limits of single requests (one that can never fit keeps none), the served ones keep the limits of statistics, the run is not past saturation, and arrivals last 5 times as long as a request takes.";
    GOODPUT: "goodput", "requests/s",
        "Finished requests that kept every limit of the SLO for single requests, per second of makespan.";
    WITHIN_SLO: "within the SLO", "%",
        "Share of finished requests that kept every limit of the SLO for single requests.";
    TTFT: "TTFT", "s",
        "Time to first token: first output token - intended arrival.";
    TPOT: "TPOT", "s",
        "Time per output token after the first: (last token - first token) / (output tokens - 1). Requests with one token have none.";
    ITL: "ITL", "s",
        "Inter-token latency: the gap between two successive tokens of a request, over all gaps of all requests.";
    E2E: "end-to-end latency", "s",
        "Last output token - intended arrival.";
    NORMALIZED: "normalized latency", "s/token",
        "End-to-end latency / output tokens.";
    SEND_DELAY: "send delay", "s",
        "Handed to the scheduler - intended arrival: what a running step delays. Latencies count from the intended arrival.";
    PERCENTILE: "p50, p90, p95, p99, max", "",
        "p_q is the smallest sample that at least q% of the samples do not exceed, so it keeps a limit exactly if q% of them do; the maximum is the largest sample. Of ITL, and of more than 1,048,576 samples, p_q is rounded up to three significant digits (0.1%), never beyond the maximum. Tables show four digits, summary.json all.";
    MEAN_CORE_BATCH: "mean core batch", "rows",
        "Rows per core step (under continuous batching per forward step, which loops the core inside).";
    MEAN_CODA_BATCH: "mean coda batch", "rows",
        "Rows per coda step.";
    MEAN_PRELUDE_BATCH: "mean prelude batch", "rows",
        "Rows per prelude step.";
    MEAN_EXIT_DEPTH: "mean exit depth", "loops",
        "Mean exit depth of decoded tokens: all but those that prefill makes at full depth, each request's first and the one after each recompute.";
    GPU_BUSY: "GPU busy", "%",
        "Device time of all steps / makespan.";
    IMBALANCE: "imbalance of replicas", "",
        "Device time of the busiest replica / mean device time of all replicas.";
    PREFILL_SHARE: "prefill share", "%",
        "Device time of prefill steps / device time of all steps.";
    KV_PEAK: "peak KV use", "%",
        "Largest number of core KV blocks in use / blocks in the pool.";
    PREFIX_HIT_RATE: "prefix hit rate", "%",
        "Tokens that admitted requests found in the prefix cache / tokens that they needed there: their prompts, after a recompute also what they had made.";
    EVICTED_PAGES: "pages evicted", "",
        "Pages of the prefix cache that were given up for others.";
    ARRIVED: "requests arrived", "",
        "Requests handed to the scheduler, refused ones among them; arrived = finished + refused once a run is over.";
    FINISHED: "requests finished", "",
        "Requests that got all their tokens; latencies are theirs.";
    REFUSED: "requests refused", "",
        "Requests that can never fit. They count here, among the arrived and against `attainment` in a capacity, and nowhere else: rates, makespan, goodput, delays, latencies and saturation are those of the other requests.";
    FAILED: "requests failed", "",
        "Requests that got no whole answer. The tokens that they got count in the throughput; latencies are those of the others.";
    PREEMPTIONS: "preemptions", "",
        "Times that a request that finished had lost its slot to KV pressure.";
    SATURATED: "past saturation", "",
        "Whether, over the last four fifths of the arrivals, the prompt queue is never empty and grows (least squares) by more than 2% of the arrival rate and by more than chance explains: 2 sqrt(1.2 (c + 1) rate / window), c the squared coefficient of variation of the gaps, at least 1. If it does not, the run keeps up, provided that arrivals last 5 times as long as a request takes (mean end-to-end latency); else it is not judged.";
    QUEUE_GROWTH: "queue growth", "requests/s",
        "Slope of the prompt queue over the time of the last four fifths of the arrivals (least squares).";
    INTERVAL: "95% interval", "",
        "Mean ± half the width of the 95% interval by Student's t over repeats with seeds seed, seed + 1, ..; every scheduler gets the same requests, so a speed-up's interval is that of the ratios seed by seed.";
    PROFILE_INTERVAL: "95% interval of the profile's fit", "",
        "How far the errors of the core's fitted coefficients may move the figure: t × sqrt(sum over j of ((f(c + l_j) - f(c - l_j)) / 2)²), with l_j the columns of the Cholesky factor of their covariance.";
}

/// All definitions as a Markdown table, for docs.
pub fn markdown() -> String {
    let mut table = String::from("| metric | unit | definition |\n|---|---|---|\n");
    for Definition { name, unit, text } in ALL {
        table.push_str(&format!("| {name} | {unit} | {text} |\n"));
    }
    table
}
