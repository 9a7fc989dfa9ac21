//! The models' own exits, live: against the dense reference, under every schedule, recorded and replayed.

use std::sync::Arc;

use engine::architecture::Family;
use engine::layout::Layout;
use engine::live::Exits;
use engine::live::cpu::{CpuExecutor, CpuOptions, bf16};
use engine::live::weights::Weights;
use engine::models::gate::GateSpec;
use engine::request::RequestId;
use engine::scheduler::{Mode, Overlap};
use engine::units::Depth;

use crate::dense_reference::{DenseModel, Job, Vector};
use crate::serve::{MODELS, OVERLAPS, Run, Served, model};

fn gate(threshold: f32, lookahead: bool) -> Exits {
    Exits::Gate(GateSpec { threshold, min_depth: None, lookahead })
}

/// A threshold at which a tiny model uses most of its depths.
fn middling(model: &str) -> f32 {
    if model == "tiny-ouro" { 0.35 } else { 0.28 }
}

/// What makes a token leave after the last of its states (`[0]` is the first, `[r]` follows loop r).
type Criterion<'a> = &'a dyn Fn(&DenseModel, &[Vector]) -> bool;

fn agrees_with_the_reference(run: &Run, criterion: Criterion<'_>, what: &str) {
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
            leaves: &|_, states| criterion(&dense, states),
        });
        let depths: Vec<usize> = transcript.depths.iter().map(|depth| usize::from(depth.0)).collect();
        assert_eq!(depths, generated.depths, "{what}: exit depths of request {request}");
        assert_eq!(transcript.output, generated.tokens, "{what}: tokens of request {request}");
    }
    let depths = served.decoded_depths();
    let spread: std::collections::BTreeSet<u8> = depths.into_iter().collect();
    assert!(spread.len() > 1, "{what}: exits at {spread:?} only test little");
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
        let at_once = |dense: &DenseModel, s: &[Vector]| released(dense, s, s.len() - 1) >= f64::from(q);
        agrees_with_the_reference(&run(q, false), &at_once, &format!("released gate, q = {q}"));
        let late = |dense: &DenseModel, s: &[Vector]| s.len() > 2 && released(dense, s, s.len() - 2) >= f64::from(q);
        agrees_with_the_reference(&run(q, true), &late, &format!("delayed gate, q = {q}"));
        // The trained gate speaks of the next loop; only the first loop's hazard is the released gate's.
        let ahead = |dense: &DenseModel, s: &[Vector]| {
            let first = dense.hazard("model.early_exit_gate", &s[1]);
            let next = s[1..s.len() - 1].iter().map(|state| dense.hazard("lookahead_gate", state));
            s.len() > 2 && cdf(std::iter::once(first).chain(next)) >= f64::from(q)
        };
        let weights = Weights::random_with_optional(&model("tiny-ouro"), 5);
        agrees_with_the_reference(&Run { weights, ..run(q, true) }, &ahead, &format!("trained gate, q = {q}"));
    }
}

#[test]
fn huginn_leaves_where_the_reference_does() {
    let distance = |states: &[Vector], depth: usize| {
        let length = |v: &mut dyn Iterator<Item = f64>| v.map(|x| x * x).sum::<f64>().sqrt();
        let change = length(&mut states[depth].iter().zip(&states[depth - 1]).map(|(s, p)| s - p));
        change / length(&mut states[depth].iter().copied())
    };
    for threshold in [0.28, 0.5] {
        let run = |late| Run::of("tiny-huginn", Layout::LastExited, gate(threshold, late));
        let at_once = |_: &DenseModel, s: &[Vector]| s.len() > 2 && distance(s, s.len() - 1) < f64::from(threshold);
        agrees_with_the_reference(&run(false), &at_once, &format!("threshold {threshold}"));
        let late = |_: &DenseModel, s: &[Vector]| s.len() > 3 && distance(s, s.len() - 2) < f64::from(threshold);
        agrees_with_the_reference(&run(true), &late, &format!("threshold {threshold}, one loop late"));
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
            let exits = Exits::Replay(Arc::new(recorded.transcripts.recorded_exits()));
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
