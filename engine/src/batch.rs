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

    /// Its rows can choose tokens: it ends with the LM head.
    #[inline]
    pub fn has_head(self) -> bool {
        matches!(self, Self::Prefill | Self::Coda | Self::Forward)
    }

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

/// One token block of the KV cache, in every plane of the core and in the boundary layers' pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Page(pub u32);

impl Page {
    /// For indexing.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Consecutive positions of one sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The first position, counted from 0 at the prompt's start.
    pub first: u32,
    /// How many; at least 1.
    pub count: u32,
}

impl Span {
    /// A single position, as in ordinary decode.
    pub fn one(position: u32) -> Self {
        Self { first: position, count: 1 }
    }

    /// The position behind the last.
    #[inline]
    pub fn end(&self) -> u32 {
        self.first + self.count
    }

    /// The last position.
    pub fn last(&self) -> u32 {
        self.end() - 1
    }

    /// Every position, in order.
    pub fn positions(&self) -> std::ops::Range<u32> {
        self.first..self.end()
    }
}

/// Where a row's activations come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// Token ids that are known: a prompt's, or tokens that were made before.
    Given,
    /// The token that was chosen for each position; it need not have reached the host.
    Sampled,
    /// Each position's own state, one loop earlier.
    Carried,
}

/// Which of a row's positions choose a token for the position behind them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Emits {
    /// None: the stage has no LM head, or a prompt goes on.
    Nothing,
    /// The last position, as a guess that a later row at the same position replaces.
    Draft,
    /// The last position.
    Last,
    /// Every position. A token counts while the next position's input was the token chosen for it.
    All,
}

/// One sequence's part in a batch: positions that run together at one depth.
///
/// A slot may appear several times in a batch, with spans that do not overlap. Positions of one slot at one depth store
/// their keys before any of them attends; everything else sees what earlier batches stored. So a position runs loop r
/// with or after the position before it, and where a plane is shared by several loops, a slot's rows are all at one depth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The sequence's slot.
    pub slot: Slot,
    /// The request in that slot.
    pub request: RequestId,
    /// How often the sequence was truncated: the same position of another epoch is another token. Outcomes of an older epoch
    /// are ignored, so a sequence is truncated once the outcomes of what it keeps are known.
    pub epoch: u32,
    /// Index of the output token that the first emitting position makes, or is on its way to: 0 comes from prefill.
    pub token: u32,
    /// Its positions. In offload and restore, all that have KV.
    pub span: Span,
    /// The core loop that runs in this batch (1-based); in a coda, the exit depth.
    pub depth: Depth,
    /// What runs.
    pub input: Input,
    /// What comes out.
    pub emits: Emits,
}

impl Row {
    /// KV entries that the row's last position attends to, itself included.
    #[inline]
    pub fn context(&self) -> u32 {
        self.span.end()
    }

    /// Positions that choose a token: always the row's last ones.
    pub fn emitted(&self) -> u32 {
        match self.emits {
            Emits::Nothing => 0,
            Emits::Draft | Emits::Last => 1,
            Emits::All => self.span.count,
        }
    }

    /// Output tokens that the row adds to its sequence.
    #[inline]
    pub fn delivered(&self, outcome: &RowOutcome) -> u32 {
        let made = match self.emits {
            Emits::Nothing | Emits::Draft => 0,
            Emits::Last => 1,
            Emits::All => outcome.accepted + 1,
        };
        // What failed is the last of them, and no token.
        made - u32::from(outcome.failed)
    }
}

/// A change of a slot's page table, made before the batch runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableEdit {
    /// The slot goes to a request, and its table is empty.
    Admit(Slot, Request),
    /// A page that holds nothing joins the table's end.
    Append(Slot, Page),
    /// A page that others hold joins the table's end, with its tokens and the depths at which they left.
    Adopt(Slot, Page),
    /// The sequence keeps its first tokens and the pages that hold them.
    Truncate(Slot, u32),
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
    /// Changes of page tables before it runs, in order.
    pub edits: Vec<TableEdit>,
}

impl Batch {
    /// Slots that a sequence takes with this batch.
    pub fn admitted(&self) -> impl Iterator<Item = (Slot, Request)> {
        self.edits.iter().filter_map(|edit| match *edit {
            TableEdit::Admit(slot, request) => Some((slot, request)),
            _ => None,
        })
    }
}

/// What a row did, as a real executor would report it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowOutcome {
    /// Core only: the depth after which the row leaves, once that is known.
    pub leaves_after: Option<Depth>,
    /// [`Emits::All`] only: leading positions whose token was the next position's input.
    pub accepted: u32,
    /// An output token ended the sequence, or it failed (`finish: eos`); always false under `finish: length`.
    pub finished: bool,
    /// The sequence is over because the model's numbers ran out of range: in place of its next token there is none.
    pub failed: bool,
}

/// A finished batch.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The batch that ran.
    pub batch: Batch,
    /// When the device started it.
    pub started: Nanos,
    /// When the device finished it.
    pub finished: Nanos,
    /// One entry a row, always.
    pub rows: Vec<RowOutcome>,
    /// The tokens' ids, [`Row::emitted`] for each row in order; none from an executor that only models time.
    pub tokens: Vec<u32>,
    /// Log-probabilities, for requests that asked for them. Each token's are told once, unless it is truncated and made
    /// again.
    pub scores: Vec<Scored>,
}

/// How probable a token was: logarithms of the softmax of the raw logits, at temperature 1 and before anything is held
/// back or cut.
#[derive(Clone, Debug, PartialEq)]
pub struct Scored {
    /// Whose token.
    pub request: RequestId,
    /// Which.
    pub at: TokenAt,
    /// Its id.
    pub id: u32,
    /// The natural logarithm of its probability.
    pub logprob: f32,
    /// The most probable ids with theirs, as many as were asked for, largest first; of equal ones the lowest id first.
    pub top: Vec<(u32, f32)>,
}

/// A token of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TokenAt {
    /// The prompt's, by position; from 1, since nothing predicts the first.
    Prompt(u32),
    /// The output's, by index.
    Output(u32),
}
