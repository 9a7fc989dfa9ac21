//! The cases: one group per layout and kind of exits, one case per way of running the same requests.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::script::{Cache, Script};
use crate::architecture::Architecture;
use crate::batch::Batch;
use crate::executor::ExitSource;
use crate::layout::Layout;
use crate::live::{LiveConfig, LiveExits, random_prompt};
use crate::models::initial_state::InitialState;
use crate::request::{Arrival, Request, RequestId};
use crate::scheduler::{Finish, KvConfig, Mode, Overlap, Prefill, Pressure, SchedulerConfig};
use crate::submission::{Logprobs, Submission};
use crate::units::{Depth, Nanos};

/// Prompts of the requests: one token, less and more than a block, exactly one, and several.
const PROMPTS: [u32; 10] = [5, 1, 4, 17, 8, 3, 12, 2, 9, 30];

/// Output tokens of every request.
const OUTPUTS: u32 = 4;

/// Small blocks, so that tables are long.
const BLOCK_TOKENS: u32 = 4;

/// The prompt of the first begins with as many tokens of the second's: whole blocks, and all but its last token.
const SHARED_PREFIX: (u32, u32, u32) = (3, 9, 16);

/// Positions of one request that run together: all that a request decodes.
const SPAN: u32 = OUTPUTS - 1;

/// Requests under one layout and one kind of exits.
#[derive(Clone, Debug)]
pub struct Group {
    /// Model, layout and exits.
    pub name: String,
    /// The model's depth.
    pub r_max: Depth,
    /// Where KV is kept.
    pub layout: Layout,
    /// Ways of running the same requests; the first is the plainest.
    pub cases: Vec<Case>,
    pattern: Pattern,
    blocks: u32,
    has_boundary: bool,
    vocab: u32,
}

/// One way of running a group's requests.
#[derive(Clone, Debug)]
pub struct Case {
    /// What is special about it.
    pub name: &'static str,
    /// The contract says that it equals the group's first case bit for bit.
    pub equals_first: bool,
    /// What outcomes may say.
    pub overlap: Overlap,
    /// The requests, with their prompts.
    pub submissions: Vec<Submission>,
    /// What runs.
    pub batches: Vec<Batch>,
    /// The chunks in which each prompt was prefilled: part of the result in the shared layouts.
    pub chunks: BTreeMap<RequestId, Vec<u32>>,
}

/// A made-up exit depth for every token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pattern {
    FullDepth { r_max: Depth },
    Mixed { r_min: Depth, r_max: Depth },
}

impl ExitSource for Pattern {
    fn exit_depth(&self, request: RequestId, token: u32) -> Depth {
        match *self {
            Self::FullDepth { r_max } => r_max,
            Self::Mixed { r_min, r_max } => {
                let choices = u32::from(r_max.0 - r_min.0) + 1;
                Depth(r_min.0 + ((request.0 * 5 + token * 3) % choices) as u8)
            }
        }
    }
}

impl Group {
    /// Exit depth of an output token.
    pub fn exit(&self, request: RequestId, token: u32) -> Depth {
        self.pattern.exit_depth(request, token)
    }

    /// No token leaves early.
    pub(super) fn is_full_depth(&self) -> bool {
        matches!(self.pattern, Pattern::FullDepth { .. })
    }
}

impl Case {
    /// What the executor is told. The initial state is noise with seed 2.
    pub fn config(&self, group: &Group) -> LiveConfig {
        let scheduler = SchedulerConfig {
            mode: Mode::Refill { min_coda_batch: 1 },
            overlap: self.overlap,
            finish: Finish::Length,
            max_num_seqs: PROMPTS.len() as u32,
            max_num_batched_tokens: 8192,
            min_free_slots: 1,
            prefill: Prefill::First,
            max_context_tokens: 1024,
            r_max: group.r_max,
            r_min: Depth(2),
            kv: KvConfig {
                layout: group.layout,
                blocks: group.blocks,
                block_tokens: BLOCK_TOKENS,
                headroom_blocks: 0,
                pressure: Pressure::Offload,
                boundary_layers: group.has_boundary,
                prefix_cache: None,
            },
        };
        LiveConfig {
            initial_state: InitialState::Noise { seed: 2 },
            window: SPAN + 1,
            keep_logits: true,
            ..LiveConfig::new(scheduler, LiveExits::Replay(Arc::new(group.pattern)))
        }
    }
}

/// Every group for a model: all layouts, at full depth and, where the layout has room for them, with mixed exits.
pub fn groups(architecture: &Architecture) -> Vec<Group> {
    let r_max = architecture.r_max;
    let full = Pattern::FullDepth { r_max };
    let mixed = Pattern::Mixed { r_min: Depth(2), r_max };
    [
        (Layout::DepthIndexed, full),
        (Layout::LastExited, full),
        (Layout::LastExited, mixed),
        (Layout::Shared, full),
        (Layout::Shared, mixed),
        (Layout::FirstThenShared, mixed),
    ]
    .into_iter()
    .map(|(layout, pattern)| group(architecture, layout, pattern))
    .collect()
}

fn group(architecture: &Architecture, layout: Layout, pattern: Pattern) -> Group {
    let planes = layout.planes(architecture.r_max);
    let has_boundary = architecture.prelude_layers + architecture.coda_layers > 0;
    // Room for every request, and a number of blocks that shares no factor with the stride of scattered blocks.
    let blocks = if planes == 1 { 211 } else { 211 * u32::from(planes) };
    let exits = if matches!(pattern, Pattern::FullDepth { .. }) { "full depth" } else { "mixed exits" };
    let mut group = Group {
        name: format!("{}, {layout}, {exits}", architecture.name),
        r_max: architecture.r_max,
        layout,
        cases: Vec::new(),
        pattern,
        blocks,
        has_boundary,
        vocab: architecture.vocab as u32,
    };
    let all: Vec<u32> = (0..PROMPTS.len() as u32).collect();
    let chunking_shows = matches!(layout, Layout::Shared | Layout::FirstThenShared);
    let mut variants: Vec<(&str, Variant, bool)> = vec![
        ("one request after the other", |s, all| all.iter().for_each(|&id| serve(s, &[id])), true),
        ("all requests together", |s, all| serve(s, all), true),
        ("in another order", |s, all| serve(s, &all.iter().rev().copied().collect::<Vec<_>>()), true),
        ("chunked prompts", chunked, !chunking_shows),
        ("mixed depths in a batch", refilled, true),
        ("scattered blocks", |s, all| serve(s, all), true),
        ("offloaded and restored", offloaded, true),
        ("exits told one loop early", refilled, true),
        ("guesses read on the way", guessed, true),
        ("a prefix that another request computed", adopted, !chunking_shows),
    ];
    // Positions of one request run together only where every loop has a plane of its own.
    if matches!(layout, Layout::DepthIndexed | Layout::LastExited) {
        variants.push(("positions side by side", |s, all| ahead(s, all, 0), true));
        variants.push(("positions one loop apart", |s, all| ahead(s, all, 1), true));
        if matches!(pattern, Pattern::FullDepth { .. }) {
            variants.push(("positions in one row", spanned, true));
        }
    }
    for (name, variant, equals_first) in variants {
        let overlap = if name == "exits told one loop early" { Overlap::Lookahead } else { Overlap::Synchronous };
        let stride = if name == "scattered blocks" { 37 } else { 1 };
        let case = case(&group, name, (overlap, stride, equals_first), |script| variant(script, &all));
        group.cases.push(case);
    }
    if matches!(pattern, Pattern::FullDepth { .. }) {
        let forward = |script: &mut Script<'_>| {
            prefill(script, &all);
            (1..OUTPUTS).for_each(|_| script.forward(&all));
        };
        let case = case(&group, "whole decode steps", (Overlap::Synchronous, 1, true), forward);
        group.cases.push(case);
    }
    group
}

type Variant = fn(&mut Script<'_>, &[u32]);

fn case(
    group: &Group,
    name: &'static str,
    (overlap, stride, equals_first): (Overlap, u32, bool),
    script: impl FnOnce(&mut Script<'_>),
) -> Case {
    let requests: Vec<Request> = (0..).zip(PROMPTS).map(request).collect();
    let cache = Cache {
        r_max: group.r_max,
        planes: group.layout.planes(group.r_max),
        block_tokens: BLOCK_TOKENS,
        blocks: group.blocks,
        stride,
    };
    let exit = |request, token| group.exit(request, token);
    let mut builder = Script::new(cache, &requests, &exit);
    script(&mut builder);
    let (batches, chunks) = builder.finish();
    let submissions = requests.iter().map(|request| submission(request, &requests, group.vocab)).collect();
    Case { name, equals_first, overlap, submissions, batches, chunks }
}

/// How many of the most probable tokens are told.
pub(super) const TOP: u32 = 5;

/// Half of the requests ask how probable their tokens were.
pub(super) fn asks_for_scores(request: RequestId) -> bool {
    request.0.is_multiple_of(2)
}

/// A request with its prompt, which is random but for the shared prefix.
fn submission(request: &Request, all: &[Request], vocab: u32) -> Submission {
    let mut prompt = random_prompt(1, request, vocab);
    let (to, from, tokens) = SHARED_PREFIX;
    if request.id.0 == to {
        let shared = random_prompt(1, &all[from as usize], vocab);
        prompt[..tokens as usize].copy_from_slice(&shared[..tokens as usize]);
    }
    let arrival = Arrival { request: *request, output_tokens: request.max_output_tokens, cancel_after: None };
    let logprobs = asks_for_scores(request.id).then_some(Logprobs { top: TOP, prompt: true });
    Submission { prompt: Some(prompt.into()), logprobs, ..arrival.into() }
}

fn request((id, prompt_tokens): (u32, u32)) -> Request {
    Request { id: RequestId(id), arrival: Nanos::ZERO, prompt_tokens, max_output_tokens: OUTPUTS }
}

fn prefill(script: &mut Script<'_>, requests: &[u32]) {
    let whole: Vec<(u32, u32)> = requests.iter().map(|&id| (id, PROMPTS[id as usize])).collect();
    script.prefill(&whole);
}

/// Whole prompts packed, then token by token, the requests in step.
fn serve(script: &mut Script<'_>, requests: &[u32]) {
    prefill(script, requests);
    (1..OUTPUTS).for_each(|_| script.cohort(requests));
}

/// Chunks of seven tokens, packed with whatever else is left.
fn chunked(script: &mut Script<'_>, all: &[u32]) {
    let mut done = vec![0; all.len()];
    while done.iter().zip(PROMPTS).any(|(&done, prompt)| done < prompt) {
        let next = |&id: &u32| {
            let tokens = (PROMPTS[id as usize] - done[id as usize]).min(7);
            (tokens > 0).then_some((id, tokens))
        };
        let chunks: Vec<(u32, u32)> = all.iter().filter_map(next).collect();
        script.prefill(&chunks);
        chunks.iter().for_each(|&(id, tokens)| done[id as usize] += tokens);
    }
    (1..OUTPUTS).for_each(|_| script.cohort(all));
}

/// Successors join while others are still in the loop, and half of the requests start one loop late.
fn refilled(script: &mut Script<'_>, all: &[u32]) {
    prefill(script, all);
    let (early, late) = all.split_at(all.len() / 2);
    script.prelude(early);
    script.core(early);
    script.prelude(late);
    let mut looping: Vec<u32> = all.to_vec();
    while !looping.is_empty() {
        script.core(&looping);
        let (left, stay): (Vec<u32>, Vec<u32>) =
            looping.iter().partition(|&&id| script.depth_of(id) == script.exit_of(id).0);
        looping = stay;
        if !left.is_empty() {
            script.coda(&left);
            let going_on: Vec<u32> = left.into_iter().filter(|&id| script.generated(id) < OUTPUTS).collect();
            if !going_on.is_empty() {
                script.prelude(&going_on);
                looping.extend(going_on);
            }
        }
    }
}

/// Every other request leaves for host memory after two tokens, while the rest go on.
fn offloaded(script: &mut Script<'_>, all: &[u32]) {
    prefill(script, all);
    script.cohort(all);
    let (away, here): (Vec<u32>, Vec<u32>) = all.iter().partition(|&&id| id % 2 == 0);
    script.offload(&away);
    script.cohort(&here);
    script.restore(&away);
    script.cohort(&away);
    script.cohort(all);
}

/// After two loops every token that goes on is read out once, as a guess that its coda replaces.
fn guessed(script: &mut Script<'_>, all: &[u32]) {
    prefill(script, all);
    for _ in 1..OUTPUTS {
        script.prelude(all);
        script.core(all);
        script.core(all);
        let mut looping = staying(script, all);
        if !looping.is_empty() {
            script.draft(&looping);
        }
        while !looping.is_empty() {
            script.core(&looping);
            looping = staying(script, &looping);
        }
        script.coda(all);
    }
}

/// Those of `requests` whose token has not left the loop.
fn staying(script: &Script<'_>, requests: &[u32]) -> Vec<u32> {
    requests.iter().copied().filter(|&id| script.depth_of(id) < script.exit_of(id).0).collect()
}

/// One request takes the pages of its prompt from another.
fn adopted(script: &mut Script<'_>, all: &[u32]) {
    let (to, from, tokens) = SHARED_PREFIX;
    let others: Vec<u32> = all.iter().copied().filter(|&id| id != to).collect();
    prefill(script, &others);
    script.adopt(to, from, tokens);
    script.prefill(&[(to, PROMPTS[to as usize] - tokens)]);
    (1..OUTPUTS).for_each(|_| script.cohort(all));
}

/// Everything once, then taken back and made again from the known tokens: each request's positions are rows of one
/// batch, each at least `lag` loops behind the one before it.
fn ahead(script: &mut Script<'_>, all: &[u32], lag: u8) {
    serve(script, all);
    all.iter().for_each(|&id| script.truncate(id, SPAN));
    script.prelude_known(all, SPAN);
    loop {
        let mut rows = Vec::new();
        for &id in all {
            // What the position before it will have run, and whether it has left.
            let (mut before, mut left) = (u8::MAX, true);
            for ahead in 0..SPAN {
                let (depth, exit) = (script.depth_ahead(id, ahead), script.exit_ahead(id, ahead).0);
                let runs = depth < exit && (left || depth + 1 + lag <= before);
                if runs {
                    rows.push((id, ahead));
                }
                (before, left) = (depth + u8::from(runs), depth == exit);
            }
        }
        if rows.is_empty() {
            break;
        }
        script.core_ahead(&rows);
    }
    (1..OUTPUTS).for_each(|_| script.coda(all));
}

/// The same with a request's positions in one row, whose coda checks them against each other.
fn spanned(script: &mut Script<'_>, all: &[u32]) {
    serve(script, all);
    all.iter().for_each(|&id| script.truncate(id, SPAN));
    script.prelude_known(all, SPAN);
    (0..script.exit_of(all[0]).0).for_each(|_| script.core_spans(all, SPAN));
    script.coda_spans(all, SPAN);
}
