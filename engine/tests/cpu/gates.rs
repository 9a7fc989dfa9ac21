//! The models' own exits, live: against the dense reference, under every schedule, recorded and replayed.

use std::collections::BTreeSet;
use std::sync::Arc;

use engine::architecture::Family;
use engine::layout::Layout;
use engine::live::LiveExits;
use engine::live::cpu::{CpuExecutor, CpuOptions, bf16};
use engine::live::weights::Weights;
use engine::models::gate::GateSpec;
use engine::request::RequestId;
use engine::scheduler::{Mode, Overlap};
use engine::units::Depth;

use crate::dense_reference::{DenseModel, Job, Token, Vector, distance};
use crate::serve::{MODELS, OVERLAPS, Run, Served, model};

fn gate(threshold: f32, lookahead: bool) -> LiveExits {
    LiveExits::Gate(GateSpec { lookahead, ..GateSpec::at(threshold) })
}

/// A threshold at which a tiny model uses most of its depths.
fn middling(model: &str) -> f32 {
    if model == "tiny-ouro" { 0.35 } else { 0.28 }
}

/// What makes a token leave after the last of its states.
pub(crate) type Leaves<'a> = &'a dyn Fn(&DenseModel, &Token<'_>) -> bool;

/// Compares tokens and exits with the dense reference's, and gives the depths.
pub(crate) fn agrees_with_the_reference(run: &Run, reads_logits: bool, leaves: Leaves<'_>, what: &str) -> BTreeSet<u8> {
    let architecture = model(run.model);
    let served = run.serve_in::<f32>();
    let dense = DenseModel::new(&architecture, &run.weights, false);
    for (request, &(prompt, outputs)) in run.workload.iter().enumerate() {
        let transcript = served.transcripts.get(RequestId(request as u32));
        let generated = dense.generate(&Job {
            prompt: &transcript.prompt,
            chunks: &[prompt as usize],
            outputs: outputs as usize,
            layout: run.layout,
            r_max: usize::from(architecture.r_max.0),
            initial: &|position, channel| {
                f64::from(run.initial_state().value(position as u32, channel as u32, architecture.noise_std()))
            },
            leaves: &|token| leaves(&dense, token),
            reads_logits,
        });
        let depths: Vec<usize> = transcript.depths.iter().map(|depth| usize::from(depth.0)).collect();
        assert_eq!(depths, generated.depths, "{what}: exit depths of request {request}");
        assert_eq!(transcript.output, generated.tokens, "{what}: tokens of request {request}");
    }
    served.decoded_depths().into_iter().collect()
}

fn spreads_as_the_reference_does(run: &Run, leaves: Leaves<'_>, what: &str) {
    let depths = agrees_with_the_reference(run, false, leaves, what);
    assert!(depths.len() > 1, "{what}: exits at {depths:?} only test little");
}

/// 1 - the product of (1 - hazard).
fn cdf(hazards: impl Iterator<Item = f64>) -> f64 {
    1.0 - hazards.map(|hazard| 1.0 - hazard).product::<f64>()
}

#[test]
fn ouro_leaves_where_the_reference_does() {
    let released = |dense: &DenseModel, states: &[Vector], loops: usize| {
        cdf(states[1..=loops].iter().map(|state| dense.hazard("model.early_exit_gate", state)))
    };
    let run = |q, lookahead| Run { r_min: Depth(1), ..Run::of("tiny-ouro", Layout::LastExited, gate(q, lookahead)) };
    for q in [0.35, 0.5] {
        let at_once = |dense: &DenseModel, t: &Token<'_>| released(dense, t.states, t.depth()) >= f64::from(q);
        spreads_as_the_reference_does(&run(q, false), &at_once, &format!("released gate, q = {q}"));
        let late = |dense: &DenseModel, t: &Token<'_>| {
            t.depth() > 1 && released(dense, t.states, t.depth() - 1) >= f64::from(q)
        };
        spreads_as_the_reference_does(&run(q, true), &late, &format!("delayed gate, q = {q}"));
        // The trained gate speaks of the next loop; only the first loop's hazard is the released gate's.
        let ahead = |dense: &DenseModel, t: &Token<'_>| {
            let first = dense.hazard("model.early_exit_gate", &t.states[1]);
            let next = t.states[1..t.depth()].iter().map(|state| dense.hazard("lookahead_gate", state));
            t.depth() > 1 && cdf(std::iter::once(first).chain(next)) >= f64::from(q)
        };
        let weights = Weights::random_with_optional(&model("tiny-ouro"), 5);
        spreads_as_the_reference_does(&Run { weights, ..run(q, true) }, &ahead, &format!("trained gate, q = {q}"));
    }
}

#[test]
fn huginn_leaves_where_the_reference_does() {
    for threshold in [0.28, 0.5] {
        let run = |late| Run::of("tiny-huginn", Layout::LastExited, gate(threshold, late));
        let below = |t: &Token<'_>, at: usize| at > 1 && distance(&t.states[..=at]) < f64::from(threshold);
        let at_once = |_: &DenseModel, t: &Token<'_>| below(t, t.depth());
        spreads_as_the_reference_does(&run(false), &at_once, &format!("threshold {threshold}"));
        let late = |_: &DenseModel, t: &Token<'_>| below(t, t.depth() - 1);
        spreads_as_the_reference_does(&run(true), &late, &format!("threshold {threshold}, one loop late"));
    }
}

#[test]
fn a_gates_exits_do_not_depend_on_the_schedule() {
    for model in MODELS {
        for layout in [Layout::LastExited, Layout::Shared, Layout::FirstThenShared] {
            let run = Run::of(model, layout, gate(middling(model), true));
            let expected = run.serve();
            for mode in [run.mode, Mode::Refill { min_coda_batch: 3 }, Mode::NoRefill] {
                let batches: Vec<_> = OVERLAPS
                    .into_iter()
                    .map(|overlap| {
                        let served = Run { mode, overlap, max_num_seqs: 7, ..run.clone() }.serve();
                        served.assert_equals(&expected, &format!("{model}, {layout}, {mode:?}, {overlap:?}"));
                        served.batches
                    })
                    .collect();
                assert!(batches.iter().all(|other| *other == batches[0]), "{model}, {layout}, {mode:?}: batches");
            }
        }
    }
}

#[test]
fn recorded_exits_replay_to_the_same_batches_and_tokens() {
    for model in MODELS {
        for overlap in OVERLAPS {
            let run = Run { overlap, ..Run::of(model, Layout::LastExited, gate(middling(model), true)) };
            let recorded = run.serve();
            let exits = LiveExits::Replay(Arc::new(recorded.transcripts.recorded_exits()));
            let replayed = Run { exits, ..run }.serve();
            assert_eq!(replayed.batches, recorded.batches, "{model}, {overlap:?}");
            replayed.assert_equals(&recorded, model);
            assert_eq!(replayed.label, "replayed");
        }
    }
}

/// Until a token's first exit nothing differs, so the first decoded token leaves exactly one loop later; from there on it
/// is another generation.
#[test]
fn a_delayed_gate_is_another_gate_and_says_so() {
    for name in MODELS {
        let run = |lookahead| Run { r_min: Depth(1), ..Run::of(name, Layout::Shared, gate(middling(name), lookahead)) };
        let (at_once, late): (Served, Served) = (run(false).serve(), run(true).serve());
        for ((_, a), (_, b)) in at_once.transcripts.iter().zip(late.transcripts.iter()) {
            if let (Some(a), Some(b)) = (a.depths.get(1), b.depths.get(1)) {
                assert_eq!(*b, a.next().min(model(name).r_max), "{name}");
            }
        }
        assert!(!at_once.differing(&late).is_empty(), "{name}: the delay was expected to show");
        assert!(late.label.contains("delayed by one loop"), "{}", late.label);
        assert!(!at_once.label.contains("delayed"), "{}", at_once.label);
    }
    let weights = Weights::random_with_optional(&model("tiny-ouro"), 5);
    let trained = Run { weights, ..Run::of("tiny-ouro", Layout::Shared, gate(0.35, true)) }.serve();
    assert_eq!(trained.label, "trained lookahead gate");
}

#[test]
fn lookahead_refuses_a_gate_that_decides_too_late() {
    for name in MODELS {
        let run = Run { overlap: Overlap::Lookahead, ..Run::of(name, Layout::Shared, gate(0.5, false)) };
        let executor = CpuExecutor::<bf16>::new(&model(name), &run.weights, run.live(), CpuOptions::default());
        let error = executor.map(|_| ()).unwrap_err().to_string();
        assert_eq!(error, "overlap: lookahead needs exits one loop early: set `lookahead: true` for the gate");
    }
}

#[test]
fn a_threshold_at_the_end_of_its_range_means_full_depth() {
    for name in MODELS {
        let architecture = model(name);
        let never = if architecture.family == Family::OURO { 1.0 } else { 0.0 };
        let served = Run::of(name, Layout::DepthIndexed, gate(never, true)).serve();
        assert!(served.decoded_depths().iter().all(|&depth| depth == architecture.r_max.0));
    }
}

#[test]
fn exits_that_the_settings_do_not_allow_are_named() {
    let error = |run: Run| run.try_serve::<bf16>().map(|_| ()).unwrap_err().to_string();
    let run = Run::of("tiny-ouro", Layout::DepthIndexed, crate::serve::early("tiny-ouro"));
    let message = error(run.clone());
    assert!(message.contains("depth_indexed accepts full-depth exits only (r_max = 4)"), "{message}");
    let message = error(Run { r_min: Depth(3), layout: Layout::Shared, ..run });
    assert!(message.contains("exits at depth 2, but must lie within 3 and 4"), "{message}");
}
