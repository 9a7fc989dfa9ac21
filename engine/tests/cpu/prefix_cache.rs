//! The prefix cache: what is found gives the bits of what would have been computed.

use engine::content::{Piece, Text};
use engine::event_loop;
use engine::executor::VirtualClock;
use engine::inbox::Replay;
use engine::layout::Layout;
use engine::live::cpu::{CpuExecutor, CpuOptions, bf16};
use engine::live::{LiveConfig, LiveExits, Transcript};
use engine::models::gate::GateSpec;
use engine::request::{Arrival, Request, RequestId};
use engine::scheduler::{CachedPages, Mode, Overlap, PrefixCache, Pressure, Scheduler};
use engine::submission::Submission;
use engine::units::Nanos;

use crate::prefixes::{Turns, cache, serve, serve_long};
use crate::serve::{Log, MODELS, Run, early, full_depth, model};

fn executor(run: &Run, cache: Option<PrefixCache>) -> CpuExecutor {
    let mut config = LiveConfig { keep_logits: true, ..run.live() };
    config.scheduler.kv.prefix_cache = cache;
    let options = CpuOptions { threads: 1, ..CpuOptions::default() };
    CpuExecutor::<bf16>::new(&model(run.model), &run.weights, config, options).unwrap()
}

fn turns(run: &Run, cache: Option<PrefixCache>) -> Turns {
    let mut executor = executor(run, cache);
    let config = executor.config().scheduler;
    serve(&mut executor, config)
}

/// 256 prompts of each family, with noise and with drawn tokens, in several schedules, in a roomy pool and in one that
/// gives pages up.
#[test]
fn where_every_loop_has_a_plane_a_found_prefix_changes_no_bit() {
    for name in MODELS {
        let threshold = if name == "tiny-ouro" { 0.6 } else { 0.3 };
        let gate = LiveExits::Gate(GateSpec { lookahead: true, ..GateSpec::at(threshold) });
        for (layout, exits) in [(Layout::DepthIndexed, full_depth(name)), (Layout::LastExited, gate)] {
            let run = Run::of(name, layout, exits);
            let cold = turns(&run, None);
            assert_eq!(cold.reuse.hit_tokens, 0);
            let planes = u32::from(layout.planes(model(name).r_max));
            let roomy = Run { blocks: 2048 * planes, ..run.clone() };
            let tight = Run { blocks: 200 * planes, max_num_seqs: 3, pressure: Pressure::Offload, ..run.clone() };
            let chunked = Run { max_num_batched_tokens: 9, mode: Mode::NoRefill, ..roomy.clone() };
            let early = layout == Layout::LastExited;
            let runs = [(&roomy, false), (&tight, true), (&chunked, false)];
            for (run, evicts) in runs.into_iter().take(if early { 3 } else { 1 }) {
                let what = format!("{name}, {layout}, {} blocks, M = {}", run.blocks, run.max_num_batched_tokens);
                let cached = turns(run, cache(CachedPages::Prompt));
                cached.assert_equals(&cold, &what);
                cached.assert_found(&what);
                assert_eq!(cached.reuse.evicted_pages > 0, evicts, "{what}");
                assert_eq!(cached.reuse.generated_hit_tokens, 0, "{what}");
            }
        }
    }
}

/// A token that left early keeps what it wrote: to adopt its page is not to prefill it at full depth.
#[test]
fn pages_of_outputs_are_another_computation_where_tokens_leave_early() {
    for name in MODELS {
        let differing = |exits: LiveExits, layout: Layout| {
            let planes = u32::from(layout.planes(model(name).r_max));
            let run = Run { blocks: 2048 * planes, ..Run::of(name, layout, exits) };
            let cached = turns(&run, cache(CachedPages::PromptAndOutput));
            assert!(cached.reuse.generated_hit_tokens > 0, "{name}: answers were expected to be found");
            let cold = turns(&run, None);
            let pairs = cached.transcripts.iter().zip(cold.transcripts.iter());
            pairs.filter(|((_, cached), (_, cold))| cached.logits != cold.logits).count()
        };
        assert_eq!(differing(full_depth(name), Layout::DepthIndexed), 0, "{name}: at full depth it is the same");
        assert!(differing(early(name), Layout::LastExited) > 0, "{name}: early exits were expected to show");
    }
}

/// Five contexts of 1,200 tokens lie in a pool for one and a bit.
#[test]
fn a_prefix_that_many_hold_takes_the_room_of_one() {
    let name = "tiny-ouro";
    let run = |pages: u32, cache| {
        let layout = Layout::LastExited;
        let blocks = pages * u32::from(layout.planes(model(name).r_max));
        let mut live = LiveConfig { keep_logits: true, ..Run { blocks, ..Run::of(name, layout, early(name)) }.live() };
        (live.scheduler.max_context_tokens, live.scheduler.kv.prefix_cache) = (1280, cache);
        let (scheduler, options) = (live.scheduler, CpuOptions { threads: 1, ..CpuOptions::default() });
        let weights = engine::live::weights::Weights::random(&model(name), 5);
        let mut executor = CpuExecutor::<bf16>::new(&model(name), &weights, live, options).unwrap();
        serve_long(&mut executor, scheduler)
    };
    let (cold, _) = run(2048, None);
    let (cached, reuse) = run(400, cache(CachedPages::Prompt));
    assert_eq!((cached == cold, reuse.hit_tokens, reuse.evicted_pages), (true, 5 * 1200, 0));
}

#[test]
fn overlap_finds_the_same_prefixes() {
    for pages in [CachedPages::Prompt, CachedPages::PromptAndOutput] {
        let run = Run::of("tiny-ouro", Layout::LastExited, early("tiny-ouro"));
        let [one, two, three] = [Overlap::Synchronous, Overlap::Asynchronous, Overlap::Lookahead]
            .map(|overlap| turns(&Run { overlap, ..run.clone() }, cache(pages)));
        for other in [two, three] {
            assert_eq!(one.steps, other.steps);
            one.assert_equals(&other, "overlap");
        }
    }
}

/// Serves prompts one after the other; the last one's transcript, and how much of it was found.
fn last(run: &Run, cache: Option<PrefixCache>, prompts: &[(u32, u32, u32)]) -> (Transcript, u32) {
    let run = Run { max_num_seqs: 1, ..run.clone() };
    let mut executor = executor(&run, cache);
    let mut scheduler = Scheduler::new(executor.config().scheduler).unwrap();
    for &(id, shared, own) in prompts {
        let (id, prompt_tokens) = (RequestId(id), shared + own);
        let request = Request { id, arrival: Nanos::ZERO, prompt_tokens, max_output_tokens: 6 };
        let arrival = Arrival { request, output_tokens: 6, cancel_after: None };
        let pieces = [Piece::start(Text::Written(1), shared)];
        let mut inbox = Replay::new([Submission { pieces: Some(pieces.into()), ..arrival.into() }].into_iter());
        let (clock, log) = (&mut VirtualClock::default(), &mut Log::default());
        event_loop::run(&mut scheduler, &mut executor, clock, &mut inbox, log).unwrap();
    }
    let id = prompts[prompts.len() - 1].0;
    let found = if prompts.len() > 1 { prompts[0].1.min(prompts[1].1) / 4 * 4 } else { 0 };
    (executor.transcripts().get(RequestId(id)).clone(), found)
}

/// Where loops share a plane, a later chunk sees what earlier ones wrote last: a hit is a chunk that ends where it does.
#[test]
fn in_shared_planes_a_hit_is_a_prompt_that_is_cut_where_the_adopted_pages_end() {
    let mut cuts_show = 0;
    for name in MODELS {
        for layout in [Layout::Shared, Layout::FirstThenShared] {
            let run = Run::of(name, layout, early(name));
            for (shared, own) in [(24, 17), (32, 32), (28, 1), (17, 9)] {
                let first = (0, 41, 3);
                let (hit, found) = last(&run, cache(CachedPages::Prompt), &[first, (1, shared, own)]);
                let cut = Run { max_num_batched_tokens: found, ..run.clone() };
                let what = format!("{name}, {layout}, {shared} + {own} tokens");
                assert!(shared + own - found <= found, "{what}: the rest is meant to be one chunk");
                assert_eq!(hit, last(&cut, None, &[(1, shared, own)]).0, "{what}");
                cuts_show += u32::from(hit != last(&run, None, &[(1, shared, own)]).0);
            }
        }
    }
    assert!(cuts_show > 0, "cuts were expected to show");
}
