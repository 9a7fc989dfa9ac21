//! The cases: one group per layout and kind of exits, one case per way of running the same requests.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::script::{Cache, Script};
use crate::architecture::Architecture;
use crate::batch::Batch;
use crate::executor::ExitSource;
use crate::layout::Layout;
use crate::live::{Exits, LiveConfig, Prompts};
use crate::models::initial_state::InitialState;
use crate::request::{Arrival, Request, RequestId};
use crate::scheduler::{Finish, KvConfig, Mode, Overlap, Pressure, SchedulerConfig};
use crate::units::{Depth, Nanos};

/// Prompts of the requests: one token, less and more than a block, exactly one, and several.
const PROMPTS: [u32; 10] = [5, 1, 4, 17, 8, 3, 12, 2, 9, 30];

/// Output tokens of every request.
const OUTPUTS: u32 = 4;

/// Small blocks, so that tables are long.
const BLOCK_TOKENS: u32 = 4;

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
    /// The requests.
    pub arrivals: Vec<Arrival>,
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
}

impl Case {
    /// What the executor is told. Prompts are random with seed 1; the initial state is noise with seed 2.
    pub fn config(&self, group: &Group) -> LiveConfig {
        LiveConfig {
            scheduler: SchedulerConfig {
                mode: Mode::Refill { min_coda_batch: 1 },
                overlap: self.overlap,
                finish: Finish::Length,
                max_num_seqs: PROMPTS.len() as u32,
                max_num_batched_tokens: 8192,
                min_free_slots: 1,
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
                },
            },
            exits: Exits::Replay(Arc::new(group.pattern)),
            prompts: Prompts::Random { seed: 1 },
            eos: None,
            initial_state: InitialState::Noise { seed: 2 },
            keep_logits: true,
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
    };
    let all: Vec<u32> = (0..PROMPTS.len() as u32).collect();
    let chunking_shows = matches!(layout, Layout::Shared | Layout::FirstThenShared);
    let variants: [(&str, Variant, bool); 8] = [
        ("one request after the other", |s, all| all.iter().for_each(|&id| serve(s, &[id])), true),
        ("all requests together", |s, all| serve(s, all), true),
        ("in another order", |s, all| serve(s, &all.iter().rev().copied().collect::<Vec<_>>()), true),
        ("chunked prompts", chunked, !chunking_shows),
        ("mixed depths in a batch", refilled, true),
        ("scattered blocks", |s, all| serve(s, all), true),
        ("offloaded and restored", offloaded, true),
        ("exits told one loop early", refilled, true),
    ];
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
        has_boundary: group.has_boundary,
        stride,
    };
    let exit = |request, token| group.exit(request, token);
    let mut builder = Script::new(cache, &requests, &exit);
    script(&mut builder);
    let (batches, chunks) = builder.finish();
    let arrivals =
        requests.into_iter().map(|request| Arrival { request, output_tokens: request.max_output_tokens }).collect();
    Case { name, equals_first, overlap, arrivals, batches, chunks }
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
