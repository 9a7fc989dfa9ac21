//! The seam between deciding and doing: a `Batch` goes to an executor, an `Outcome` comes back.

use serde::{Deserialize, Serialize};

use crate::request::{Request, RequestId};
use crate::units::{Depth, Nanos};

/// What an executor can be asked to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Prompt chunks, packed, at full depth; a row that ends its prompt yields an output token.
    Prefill,
    /// Embedding and the layers before the loop, one token a row.
    Prelude,
    /// One application of the looped block, rows of any depth together.
    Core,
    /// The layers behind the loop and the LM head: yields one output token a row.
    Coda,
    /// Continuous batching's whole decode step: prelude, `r_max` core steps and coda in one launch.
    Forward,
    /// Moves a preempted sequence's KV to host memory.
    Offload,
    /// Moves an offloaded sequence's KV back into newly appended blocks.
    Restore,
}

impl Stage {
    /// Every stage, in the order in which reports list them.
    pub const ALL: [Self; 7] =
        [Self::Prefill, Self::Prelude, Self::Core, Self::Coda, Self::Forward, Self::Offload, Self::Restore];

    /// The name in logs and tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Prefill => "prefill",
            Self::Prelude => "prelude",
            Self::Core => "core",
            Self::Coda => "coda",
            Self::Forward => "forward",
            Self::Offload => "offload",
            Self::Restore => "restore",
        }
    }
}

/// A place for one resident sequence, `0..W`; executors index their mirrors by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u32);

impl Slot {
    /// For indexing.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// One sequence's part in a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The sequence's slot.
    pub slot: Slot,
    /// The request in that slot.
    pub request: RequestId,
    /// Index of the output token being made: 0 comes from prefill, `j >= 1` from decode step `j`.
    pub token: u32,
    /// Position of the row's first input token in its sequence, from 0.
    pub position: u32,
    /// Input tokens: 1 in decode, the chunk in prefill, all KV tokens in offload and restore.
    pub tokens: u32,
    /// The core loop that runs in this batch (1-based); in a coda, the exit depth.
    pub depth: Depth,
    /// Prefill: this chunk is the prompt's last, so the row yields an output token.
    pub ends_prompt: bool,
}

impl Row {
    /// KV entries that the row's last token attends to, itself included.
    pub fn context(&self) -> u32 {
        self.position + self.tokens
    }
}

/// Which KV a block table is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Plane {
    /// The prelude's and coda's layers, in a pool of their own.
    Boundary,
    /// The core's layers; plane 0 holds depth 1.
    Core(u8),
}

/// A block added at the end of one (sequence, plane) table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppendedBlock {
    /// The sequence.
    pub slot: Slot,
    /// The table.
    pub plane: Plane,
    /// The block in the plane's pool.
    pub block: u32,
}

/// One executor call: plain data, decided by the scheduler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Counts from 0 in launch order.
    pub id: u64,
    /// What to run.
    pub stage: Stage,
    /// Its rows, in order.
    pub rows: Vec<Row>,
    /// Slots that a sequence takes with this batch; executors clear those tables first.
    pub admitted: Vec<(Slot, Request)>,
    /// Blocks to append before running.
    pub appended: Vec<AppendedBlock>,
}

/// What a row did, as a real executor would report it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowOutcome {
    /// Core only: the depth after which the row leaves, once that is known.
    pub leaves_after: Option<Depth>,
    /// The output token ended the sequence (`finish: eos`); always false under `finish: length`.
    pub finished: bool,
}

/// A finished batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The batch that ran.
    pub batch: Batch,
    /// When the device started it.
    pub started: Nanos,
    /// When the device finished it.
    pub finished: Nanos,
    /// One entry a row; empty for stages that decide nothing.
    pub rows: Vec<RowOutcome>,
}
