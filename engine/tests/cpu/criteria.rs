//! Exit criteria that a model need not be trained for, live: against the dense reference, and under every schedule.

use std::cell::RefCell;

use engine::layout::Layout;
use engine::live::conformance::{self, Case, Group, Heard};
use engine::live::cpu::{CpuExecutor, CpuOptions, bf16};
use engine::live::weights::Weights;
use engine::live::{LiveConfig, LiveExits, OutputToken};
use engine::models::criterion::Criterion;
use engine::models::gate::GateSpec;
use engine::scheduler::{Mode, Overlap};
use engine::units::Depth;

use crate::dense_reference::{DenseModel, Job, Token, argmax, distance, divergence, entropy};
use crate::gates::agrees_with_the_reference;
use crate::serve::{OVERLAPS, Run, model};

const MODELS: [&str; 4] = ["tiny-huginn", "tiny-recurrent-llama", "tiny-nanbeige", "tiny-ouro"];

fn gate(criterion: Criterion, threshold: f32, lookahead: bool) -> LiveExits {
    LiveExits::Gate(GateSpec { criterion: Some(criterion), lookahead, ..GateSpec::at(threshold) })
}

/// Thresholds at which tiny models use several of their depths, a strict and a loose one. Of two loops only the first can
/// end early, which is compared with what stands before it.
fn thresholds(model: &str, criterion: Criterion) -> [f32; 2] {
    match (criterion, model) {
        (Criterion::LatentDifference, _) => [0.25, 0.4],
        (Criterion::EntropyDifference, "tiny-nanbeige") => [94.1, 94.2],
        (Criterion::EntropyDifference, _) => [0.02, 0.1],
        (Criterion::Kl, "tiny-nanbeige") => [0.4, 0.5],
        (Criterion::Kl, _) => [0.05, 0.2],
        (Criterion::ArgmaxStability, _) => [1.0, 2.0],
        (Criterion::Hazard, _) => panic!("it takes a trained gate"),
    }
}

fn untrained() -> impl Iterator<Item = Criterion> {
    Criterion::ALL.into_iter().filter(|criterion| *criterion != Criterion::Hazard)
}

/// The rule by its definition: whether the token may leave after loop `at`.
fn met(criterion: Criterion, threshold: f64, token: &Token<'_>, at: usize) -> bool {
    let logits = |depth: usize| &token.logits[depth - 1];
    match criterion {
        Criterion::LatentDifference => distance(&token.states[..=at]) < threshold,
        Criterion::EntropyDifference => {
            let before = if at > 1 { entropy(logits(at - 1)) } else { 100.0 };
            (entropy(logits(at)) - before).abs() < threshold
        }
        Criterion::Kl => divergence((at > 1).then(|| logits(at - 1)), logits(at)) < threshold,
        Criterion::ArgmaxStability => {
            let last = argmax(logits(at));
            let kept = (1..at).rev().take_while(|&depth| argmax(logits(depth)) == last).count();
            kept as f64 >= threshold
        }
        Criterion::Hazard => panic!("it takes a trained gate"),
    }
}

#[test]
fn every_criterion_leaves_where_the_reference_does() {
    for name in MODELS {
        let architecture = model(name);
        let first = usize::from(architecture.r_min.0.max(2) - 1);
        for criterion in untrained() {
            let mut depths = std::collections::BTreeSet::new();
            for threshold in thresholds(name, criterion) {
                for late in [false, true] {
                    let exits = gate(criterion, threshold, late);
                    let run = Run { r_min: Depth(1), ..Run::of(name, Layout::LastExited, exits) };
                    let leaves = |_: &DenseModel, token: &Token<'_>| {
                        let at = token.depth() - usize::from(late);
                        at >= first && met(criterion, threshold.into(), token, at)
                    };
                    let what = format!("{name}, {} {threshold}, late {late}", criterion.name());
                    let got = agrees_with_the_reference(&run, criterion.reads_logits(), &leaves, &what);
                    println!("{what}: exits at {got:?}");
                    depths.extend(got);
                }
            }
            // A model of two loops can keep its largest logit once, and then it has run both.
            let can_spread = architecture.r_max > Depth(2) || criterion != Criterion::ArgmaxStability;
            assert!(depths.len() > 1 || !can_spread, "{name}, {criterion:?}: exits at {depths:?} only test little");
        }
    }
}

#[test]
fn no_criterion_depends_on_the_schedule() {
    for name in MODELS {
        for criterion in untrained() {
            let run = Run::of(name, Layout::LastExited, gate(criterion, thresholds(name, criterion)[1], true));
            let expected = run.serve();
            for mode in [run.mode, Mode::Refill { min_coda_batch: 3 }, Mode::NoRefill] {
                for overlap in OVERLAPS {
                    let served = Run { mode, overlap, max_num_seqs: 7, ..run.clone() }.serve();
                    served.assert_equals(&expected, &format!("{name}, {criterion:?}, {mode:?}, {overlap:?}"));
                }
            }
            let shared = Run { layout: Layout::Shared, ..run };
            let together = Run { overlap: Overlap::Lookahead, max_num_seqs: 7, ..shared.clone() };
            together.serve().assert_equals(&shared.serve(), &format!("{name}, {criterion:?}, shared"));
        }
    }
}

/// Tokens that run all loops are the same whoever reads them out on the way: the coda stores its keys and values anew.
#[test]
fn reading_tokens_out_on_the_way_changes_no_token() {
    for name in MODELS {
        let r_max = model(name).r_max;
        let plain = Run::of(name, Layout::LastExited, crate::serve::full_depth(name)).serve();
        // As strict as can be without being full depth by its range.
        let criteria = [(Criterion::EntropyDifference, 1e-30), (Criterion::Kl, 1e-30)];
        for (criterion, threshold) in criteria {
            let served = Run::of(name, Layout::LastExited, gate(criterion, threshold, false)).serve();
            assert!(served.decoded_depths().iter().all(|&depth| depth == r_max.0), "{name}, {criterion:?}");
            served.assert_equals(&plain, &format!("{name}, {criterion:?}"));
        }
    }
}

#[test]
fn the_label_names_the_criterion_and_its_delay() {
    let label = |criterion, late| Run::of("tiny-huginn", Layout::Shared, gate(criterion, 5.0, late)).serve().label;
    assert_eq!(label(Criterion::EntropyDifference, false), "entropy difference");
    assert_eq!(label(Criterion::Kl, true), "KL divergence, delayed by one loop");
    assert_eq!(label(Criterion::ArgmaxStability, false), "argmax stability");
}

#[test]
fn what_cannot_be_run_says_what_to_change() {
    let error = |name: &'static str, exits: LiveExits, overlap: Overlap, window: u32| {
        let run = Run { overlap, ..Run::of(name, Layout::LastExited, exits) };
        let config = LiveConfig { window, ..run.live() };
        let executor = CpuExecutor::<bf16>::new(&model(name), &run.weights, config, CpuOptions::default());
        executor.map(|_| ()).map_err(|error| error.to_string())
    };
    let kl = |lookahead| gate(Criterion::Kl, 0.1, lookahead);
    let said = error("tiny-huginn", kl(false), Overlap::Synchronous, 4).unwrap_err();
    assert!(
        said.contains("kl runs the layers behind the loop after every loop") && said.contains("window is 4"),
        "{said}"
    );
    // Without such layers nothing is stored that another position could read.
    error("tiny-ouro", kl(false), Overlap::Synchronous, 4).unwrap();
    error("tiny-nanbeige", kl(false), Overlap::Synchronous, 4).unwrap();
    let said = error("tiny-huginn", kl(false), Overlap::Lookahead, 1).unwrap_err();
    assert!(said.contains("set `lookahead: true` for the gate"), "{said}");
    let said = error("tiny-huginn", gate(Criterion::Hazard, 0.5, false), Overlap::Synchronous, 1).unwrap_err();
    assert!(said.starts_with("exits.gate.criterion: tiny-huginn has no trained gate"), "{said}");
    let said = error("tiny-huginn", gate(Criterion::ArgmaxStability, 0.5, false), Overlap::Synchronous, 1).unwrap_err();
    assert!(said.starts_with("exits.gate.threshold: argmax_stability counts loops"), "{said}");
}

/// Every request of a case, generated alone: what each criterion looks at after every loop but the last.
fn oracle(dense: &DenseModel, criterion: Criterion, group: &Group, case: &Case, config: &LiveConfig) -> Heard {
    let mut heard = Heard::default();
    for submission in &case.submissions {
        let (id, prompt) = (submission.arrival.request.id, submission.prompt.as_deref().unwrap());
        let signals = RefCell::new(Vec::new());
        let generated = dense.generate(&Job {
            prompt,
            chunks: &[prompt.len()],
            outputs: submission.arrival.output_tokens as usize,
            layout: group.layout,
            r_max: usize::from(group.r_max.0),
            initial: &|position, channel| {
                f64::from(config.initial_state.value(position as u32, channel as u32, dense.noise_std()))
            },
            leaves: &|token| {
                let signal = signal(dense, criterion, token);
                signals.borrow_mut().push(((id, token.index as u32, Depth(token.depth() as u8)), signal as f32));
                false
            },
            reads_logits: true,
        });
        heard.transcripts.begin(id, prompt);
        for (index, &token) in (0..).zip(&generated.tokens) {
            heard.transcripts.push(id, index, OutputToken { token, depth: group.r_max, logits: None });
        }
        heard.signals.extend(signals.into_inner());
    }
    heard
}

fn signal(dense: &DenseModel, criterion: Criterion, token: &Token<'_>) -> f64 {
    let now = token.logits.last().unwrap();
    match criterion {
        Criterion::Hazard => dense.hazard("model.early_exit_gate", token.states.last().unwrap()),
        Criterion::LatentDifference => distance(token.states),
        Criterion::EntropyDifference => entropy(now),
        Criterion::Kl => divergence(token.logits.iter().rev().nth(1), now),
        Criterion::ArgmaxStability => argmax(now) as f64,
    }
}

#[test]
fn signals_agree_with_the_dense_reference_and_depend_on_nothing_that_shares_their_batch() {
    for name in MODELS {
        let architecture = model(name);
        let weights = Weights::random(&architecture, 11);
        let dense = DenseModel::new(&architecture, &weights, false);
        let options = CpuOptions { threads: 1, ..CpuOptions::default() };
        for criterion in untrained().chain((name == "tiny-ouro").then_some(Criterion::Hazard)) {
            let error = conformance::run_signals(
                &architecture,
                criterion,
                |config| CpuExecutor::<f32>::new(&architecture, &weights, config, options),
                |group, case, config| oracle(&dense, criterion, group, case, &config),
                2e-5,
            );
            let error = error.unwrap_or_else(|failure| panic!("{failure}"));
            println!("{name}, {}: {} signals, largest error {:.1e}", criterion.name(), error.compared, error.max_error);
            // Ten requests of three decoded tokens, three ways.
            assert_eq!(error.compared, 3 * 10 * 3 * usize::from(architecture.r_max.0 - 1));
        }
    }
}
