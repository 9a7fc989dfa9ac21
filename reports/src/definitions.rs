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
        "Output tokens delivered / makespan. The makespan runs from the first arrival to the end of the last step.";
    STEADY_THROUGHPUT: "steady throughput", "tokens/s",
        "Throughput while the system is full: from the completion of 2 W requests to the last admission (W: sequences that may be resident).";
    SPEEDUP: "speed-up", "×",
        "Throughput / throughput of full-depth continuous batching on the same requests. Online, where throughput is the arrival rate until the system saturates, it is the ratio of capacities.";
    STEADY_SPEEDUP: "steady speed-up", "×",
        "Speed-up by the throughputs in the steady windows.";
    S_DEC: "S_dec", "×",
        "Bound on the speed-up of decode, by FLOPs: (F_0 + r_max F_r) / (F_0 + d F_r). F counts the linear layers outside the loop (F_0) and in one loop (F_r); d is the mean exit depth of decoded tokens.";
    S_E2E: "S_e2e", "×",
        "Bound on the speed-up of the whole run: 1 / (a + (1 - a) / S_dec). a is prefill's share of device time in the full-depth continuous-batching run of the same requests in the same overlap mode.";
    REALISED_SHARE: "realised share", "%",
        "Speed-up / S_e2e.";
    FLOOR_SPEEDUP: "speed-up at the floor", "×",
        "The speed-up of the same requests on the same device without any overhead (no launches, no host time).";
    FLOOR_SHARE: "realised share at the floor", "%",
        "Speed-up at the floor / S_e2e at the floor. What is missing here is missing to physics; what the realised share lacks beyond it is missing to overheads.";
    CAPACITY: "capacity", "requests/s",
        "The highest arrival rate at which the SLO is kept.";
    GOODPUT: "goodput", "requests/s",
        "Finished requests that kept every limit of the SLO, per second of makespan.";
    WITHIN_SLO: "within the SLO", "%",
        "Share of finished requests that kept every limit of the SLO.";
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
    MEAN_CORE_BATCH: "mean core batch", "rows",
        "Rows per core step (under continuous batching per forward step, which loops the core inside).";
    MEAN_CODA_BATCH: "mean coda batch", "rows",
        "Rows per coda step.";
    MEAN_PRELUDE_BATCH: "mean prelude batch", "rows",
        "Rows per prelude step.";
    MEAN_EXIT_DEPTH: "mean exit depth", "loops",
        "Mean exit depth of decoded tokens: all but each request's first, which prefill makes at full depth.";
    GPU_BUSY: "GPU busy", "%",
        "Device time of all steps / makespan.";
    PREFILL_SHARE: "prefill share", "%",
        "Device time of prefill steps / device time of all steps.";
    KV_PEAK: "peak KV use", "%",
        "Largest number of core KV blocks in use / blocks in the pool.";
    ARRIVED: "requests arrived", "",
        "Requests handed to the scheduler; arrived = finished + refused once a run is over.";
    FINISHED: "requests finished", "",
        "Requests that got all their tokens; latencies are theirs.";
    REFUSED: "requests refused", "",
        "Requests that can never fit. They count here and nowhere else.";
    PREEMPTIONS: "preemptions", "",
        "Times that a request that finished had lost its slot to KV pressure.";
    SATURATED: "past saturation", "",
        "Whether the prompt queue grows by more than 2% of the arrival rate over the last four fifths of the arrivals (least squares).";
    QUEUE_GROWTH: "queue growth", "requests/s",
        "Slope of the prompt queue over the last four fifths of the arrivals (least squares).";
}

/// All definitions as a Markdown table, for docs.
pub fn markdown() -> String {
    let mut table = String::from("| metric | unit | definition |\n|---|---|---|\n");
    for Definition { name, unit, text } in ALL {
        table.push_str(&format!("| {name} | {unit} | {text} |\n"));
    }
    table
}
