//! The parts of a scenario that say what arrives and where tokens exit.
//!
//! ```yaml
//! workload:
//!   lengths: sharegpt        # sharegpt | alpaca | arxiv | { fixed: { prompt_tokens: 512, output_tokens: 128 } }
//!   file: lengths.csv        # overrides lengths; .csv or .parquet
//!   scheduler: refill K=1    # of a file with the requests of several schedulers, whose to take
//!   requests: 6000           # at most this many; a file and a duration may end the workload earlier
//!   arrivals: offline        # offline | { poisson: { rate_per_s: 4, duration_s: 600 } }
//!                            # | { gamma: { rate_per_s: 4, burstiness: 0.5, duration_s: 600 } } | trace
//!                            # | { closed: { concurrency: 8, think_s: 0.5 } }
//!   max_total_tokens: 16384  # generated lengths only: pairs with a longer sum are drawn again
//!   shared_prefixes: { groups: 8, prefix_tokens: 512, share: 0.9 }  # in front of nine prompts in ten, one of 8 texts
//! exits: full_depth          # full_depth | replay | { preset: { name: ouro-q0.2, correlation: 0.3 } }
//!                            # | { gate: { criterion: kl, threshold: 0.0005, lookahead: true } } (live runs)
//!                            # | { distribution: { depths: { 2: 0.25, 3: 0.55, 4: 0.2 }, correlation: 0 } }
//! ```

use std::path::PathBuf;

use engine::models::gate::GateSpec;
use serde::{Deserialize, Serialize};

use crate::exits::preset::PresetName;
use crate::exits::table::DepthTable;
use crate::numbers::{
    Burstiness, Concurrency, Correlation, GroupCount, Probability, RatePerS, RequestCount, Seconds, ThinkSeconds,
    TokenCount,
};

/// Which requests arrive, and when.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkloadConfig {
    /// Where lengths come from unless a file is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lengths: Option<LengthsConfig>,
    /// A workload file, which overrides `lengths`; its rows are taken in order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// Whose requests to take of a file that has those of several schedulers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduler: Option<String>,
    /// At most this many requests; a file's end and the arrivals' duration may end the workload earlier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<RequestCount>,
    /// When they arrive.
    pub arrivals: ArrivalsConfig,
    /// Generated lengths whose prompt and output sum to more are drawn again; a file and `fixed` are taken as they are.
    #[serde(default = "max_total_tokens")]
    pub max_total_tokens: TokenCount,
    /// Texts that stand in front of prompts, which get longer by them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared_prefixes: Option<SharedPrefixes>,
}

/// Groups of requests whose prompts begin with the same tokens.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SharedPrefixes {
    /// How many texts there are, each as probable as another.
    pub groups: GroupCount,
    /// Tokens of each.
    pub prefix_tokens: TokenCount,
    /// How probable it is that a request begins with one; the others begin with tokens of their own.
    #[serde(default = "everyone")]
    pub share: Probability,
}

/// Where lengths come from.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum LengthsConfig {
    /// Chat turns of ShareGPT: mean prompt 267, mean output 311 tokens, heavy tails.
    Sharegpt,
    /// Instructions of Alpaca: 18 and 60 tokens.
    Alpaca,
    /// Articles and abstracts of ArXiv-Summarization: 6,989 and 370 tokens.
    Arxiv,
    /// All requests alike.
    Fixed {
        /// Length of every prompt.
        prompt_tokens: TokenCount,
        /// Length of every output.
        output_tokens: TokenCount,
    },
}

/// When requests arrive.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ArrivalsConfig {
    /// All at time zero.
    Offline,
    /// A Poisson process.
    Poisson {
        /// Mean rate.
        rate_per_s: RatePerS,
        /// Arrivals from here on are cut off.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        duration_s: Option<Seconds>,
    },
    /// Gamma-distributed gaps, as in vLLM's benchmark: shape `burstiness`, mean 1 / rate.
    Gamma {
        /// Mean rate.
        rate_per_s: RatePerS,
        /// The gaps' shape; their squared coefficient of variation is its inverse.
        burstiness: Burstiness,
        /// Arrivals from here on are cut off.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        duration_s: Option<Seconds>,
    },
    /// The file's `arrival_s`.
    Trace,
    /// A closed loop: clients that wait for an answer before they send again.
    Closed {
        /// How many clients, with one request each at a time.
        concurrency: Concurrency,
        /// From an answer to the client's next request.
        #[serde(default)]
        think_s: ThinkSeconds,
    },
}

/// Where the true exit depths come from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ExitsConfig {
    /// Every token runs all loops.
    FullDepth,
    /// The file's `exit_depths`.
    Replay,
    /// The model's own gate, or another criterion, in live runs.
    Gate(GateSpec),
    /// A named, assumed shape.
    Preset {
        /// Its name.
        name: PresetName,
        /// How likely a token keeps the depth of the token before it.
        #[serde(default)]
        correlation: Correlation,
    },
    /// A table of probabilities.
    Distribution {
        /// The probability of each depth.
        depths: DepthTable,
        /// How likely a token keeps the depth of the token before it.
        #[serde(default)]
        correlation: Correlation,
    },
}

/// Every request begins with a shared text.
fn everyone() -> Probability {
    Probability::CERTAIN
}

/// The paper's filter: prompt and output together within 16,384 tokens.
fn max_total_tokens() -> TokenCount {
    TokenCount::PAPER_CONTEXT
}
