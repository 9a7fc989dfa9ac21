//! Batches without a scheduler: a script says what runs, the builder keeps the block tables.

use std::collections::{BTreeMap, VecDeque};

use crate::batch::{AppendedBlock, Batch, Plane, Row, Slot, Stage};
use crate::request::{Request, RequestId};
use crate::units::Depth;

/// Builds batches for requests that each have a slot of their own, numbered like them.
///
/// Exit depths follow a given function; a script that runs a row beyond its exit is wrong and panics.
pub struct Script<'a> {
    exit: &'a dyn Fn(RequestId, u32) -> Depth,
    r_max: Depth,
    block_tokens: u32,
    core_blocks: VecDeque<u32>,
    boundary_blocks: VecDeque<u32>,
    has_boundary: bool,
    planes: u8,
    sequences: BTreeMap<RequestId, Sequence>,
    batches: Vec<Batch>,
}

/// What the script knows of a request.
#[derive(Clone, Debug)]
struct Sequence {
    request: Request,
    tables: BTreeMap<Plane, Vec<u32>>,
    resident: bool,
    prefilled: u32,
    chunks: Vec<u32>,
    generated: u32,
    /// Loops that ran for the token in the making.
    depth: u8,
}

/// Sizes of a script's cache.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cache {
    pub(super) r_max: Depth,
    pub(super) planes: u8,
    pub(super) block_tokens: u32,
    pub(super) blocks: u32,
    pub(super) has_boundary: bool,
    /// Blocks are handed out in this stride, so that neighbours in a table are none in the pool.
    pub(super) stride: u32,
}

impl<'a> Script<'a> {
    pub(super) fn new(cache: Cache, requests: &[Request], exit: &'a dyn Fn(RequestId, u32) -> Depth) -> Self {
        let strided = |blocks: u32| (0..blocks).map(|i| (i * cache.stride) % blocks).collect();
        let sequence = |request: &Request| {
            let tables = BTreeMap::new();
            let sequence = Sequence {
                request: *request,
                tables,
                resident: false,
                prefilled: 0,
                chunks: Vec::new(),
                generated: 0,
                depth: 0,
            };
            (request.id, sequence)
        };
        Self {
            exit,
            r_max: cache.r_max,
            block_tokens: cache.block_tokens,
            core_blocks: strided(cache.blocks),
            boundary_blocks: strided(cache.blocks / u32::from(cache.planes)),
            has_boundary: cache.has_boundary,
            planes: cache.planes,
            sequences: requests.iter().map(sequence).collect(),
            batches: Vec::new(),
        }
    }

    /// Prefills the next tokens of prompts, packed in one batch: (request, tokens).
    pub fn prefill(&mut self, chunks: &[(u32, u32)]) {
        self.batch(Stage::Prefill, chunks, |sequence, tokens| {
            let position = sequence.prefilled;
            sequence.prefilled += tokens;
            sequence.chunks.push(tokens);
            let ends_prompt = sequence.prefilled == sequence.request.prompt_tokens;
            assert!(sequence.prefilled <= sequence.request.prompt_tokens, "a chunk runs beyond its prompt");
            sequence.generated += u32::from(ends_prompt);
            (position, tokens, None, ends_prompt)
        });
    }

    /// The prelude of the next token of each request.
    pub fn prelude(&mut self, requests: &[u32]) {
        self.decode(Stage::Prelude, requests, |sequence| {
            sequence.depth = 0;
            Depth::FIRST
        });
    }

    /// The next loop of each request, whatever depth it is at.
    pub fn core(&mut self, requests: &[u32]) {
        let (exit, r_max) = (self.exit, self.r_max);
        self.decode(Stage::Core, requests, |sequence| {
            sequence.depth += 1;
            let exit = exit(sequence.request.id, sequence.generated).min(r_max);
            assert!(sequence.depth <= exit.0, "the script runs a row beyond its exit");
            Depth(sequence.depth)
        });
    }

    /// The coda of requests that have left the loop.
    pub fn coda(&mut self, requests: &[u32]) {
        self.decode(Stage::Coda, requests, |sequence| {
            sequence.generated += 1;
            Depth(sequence.depth)
        });
    }

    /// A whole decode step at full depth.
    pub fn forward(&mut self, requests: &[u32]) {
        let r_max = self.r_max;
        self.decode(Stage::Forward, requests, |sequence| {
            sequence.generated += 1;
            r_max
        });
    }

    /// Prelude, loops until every request has left, one coda for all: a step of no-refill.
    pub fn cohort(&mut self, requests: &[u32]) {
        self.prelude(requests);
        for depth in 1..=self.r_max.0 {
            let staying: Vec<u32> = requests.iter().copied().filter(|&id| self.exit_of(id).0 >= depth).collect();
            if !staying.is_empty() {
                self.core(&staying);
            }
        }
        self.coda(requests);
    }

    /// The exit of the token that a request is making.
    pub fn exit_of(&self, request: u32) -> Depth {
        let id = RequestId(request);
        (self.exit)(id, self.sequences[&id].generated)
    }

    /// Loops that ran for the token that a request is making.
    pub fn depth_of(&self, request: u32) -> u8 {
        self.sequences[&RequestId(request)].depth
    }

    /// Output tokens that a request has made.
    pub fn generated(&self, request: u32) -> u32 {
        self.sequences[&RequestId(request)].generated
    }

    /// Moves requests between two tokens to host memory and frees their blocks.
    pub fn offload(&mut self, requests: &[u32]) {
        let all: Vec<(u32, u32)> = requests.iter().map(|&id| (id, 0)).collect();
        self.batch(Stage::Offload, &all, |sequence, _| (0, sequence.next_position(), Some(Depth::FIRST), false));
        for &id in requests {
            let sequence = self.sequences.get_mut(&RequestId(id)).expect("a request of the script");
            sequence.resident = false;
            for (plane, blocks) in std::mem::take(&mut sequence.tables) {
                match plane {
                    Plane::Boundary => self.boundary_blocks.extend(blocks),
                    Plane::Core(_) => self.core_blocks.extend(blocks),
                }
            }
        }
    }

    /// Brings them back into other blocks.
    pub fn restore(&mut self, requests: &[u32]) {
        let all: Vec<(u32, u32)> = requests.iter().map(|&id| (id, 0)).collect();
        self.batch(Stage::Restore, &all, |sequence, _| (0, sequence.next_position(), Some(Depth::FIRST), false));
    }

    /// The batches, and the chunks in which each prompt was prefilled.
    pub(super) fn finish(self) -> (Vec<Batch>, BTreeMap<RequestId, Vec<u32>>) {
        (self.batches, self.sequences.into_iter().map(|(id, sequence)| (id, sequence.chunks)).collect())
    }

    fn decode(&mut self, stage: Stage, requests: &[u32], depth: impl Fn(&mut Sequence) -> Depth) {
        let all: Vec<(u32, u32)> = requests.iter().map(|&id| (id, 1)).collect();
        self.batch(stage, &all, |sequence, tokens| {
            let position = sequence.next_position();
            (position, tokens, Some(depth(sequence)), false)
        });
    }

    /// One batch; `step` moves a sequence on and gives (position, tokens, depth, ends_prompt) of its row.
    fn batch(
        &mut self,
        stage: Stage,
        requests: &[(u32, u32)],
        step: impl Fn(&mut Sequence, u32) -> (u32, u32, Option<Depth>, bool),
    ) {
        let (mut rows, mut admitted, mut appended) = (Vec::new(), Vec::new(), Vec::new());
        for &(id, tokens) in requests {
            let (id, slot) = (RequestId(id), Slot(id));
            let sequence = self.sequences.get_mut(&id).expect("a request of the script");
            let token = sequence.generated;
            let (position, tokens, depth, ends_prompt) = step(sequence, tokens);
            if !sequence.resident {
                sequence.resident = true;
                admitted.push((slot, sequence.request));
            }
            let depth = depth.unwrap_or(self.r_max);
            rows.push(Row { slot, request: id, token, position, tokens, depth, ends_prompt });
            self.grow(id, position + tokens, &mut appended);
        }
        let id = self.batches.len() as u64;
        self.batches.push(Batch { id, stage, rows, admitted, appended });
    }

    fn grow(&mut self, id: RequestId, tokens: u32, appended: &mut Vec<AppendedBlock>) {
        let sequence = self.sequences.get_mut(&id).expect("a request of the script");
        let boundary = self.has_boundary.then_some(Plane::Boundary);
        for plane in (0..self.planes).map(Plane::Core).chain(boundary) {
            let table = sequence.tables.entry(plane).or_default();
            let pool = match plane {
                Plane::Boundary => &mut self.boundary_blocks,
                Plane::Core(_) => &mut self.core_blocks,
            };
            while (table.len() as u32) * self.block_tokens < tokens {
                let block = pool.pop_front().expect("the script's pool is large enough");
                table.push(block);
                appended.push(AppendedBlock { slot: Slot(id.0), plane, block });
            }
        }
    }
}

impl Sequence {
    /// Position of the next decode token's input: the last token made.
    fn next_position(&self) -> u32 {
        self.request.prompt_tokens + self.generated - 1
    }
}
