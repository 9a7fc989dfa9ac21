//! What equals what: the contract's matrix over modes, layouts, exits, chunking and overlap, and its exceptions.

use engine::batch::Stage;
use engine::layout::Layout;
use engine::scheduler::{Mode, Pressure};

use crate::serve::{MODELS, OTHERS, OVERLAPS, Run, Served, early, full_depth};

const REFILL: Mode = Mode::Refill { min_coda_batch: 1 };
const LAYOUTS_WITH_EARLY_EXITS: [Layout; 3] = [Layout::LastExited, Layout::Shared, Layout::FirstThenShared];

/// One request at a time, a token at a time.
fn alone(run: &Run) -> Served {
    Run { mode: Mode::NoRefill, max_num_seqs: 1, ..run.clone() }.serve()
}

#[test]
fn staged_modes_give_the_same_tokens_for_any_exits() {
    for model in MODELS {
        for layout in LAYOUTS_WITH_EARLY_EXITS {
            let run = Run::of(model, layout, early(model));
            let expected = alone(&run);
            for mode in [REFILL, Mode::Refill { min_coda_batch: 3 }, Mode::NoRefill] {
                for max_num_seqs in [3, 12] {
                    let served = Run { mode, max_num_seqs, ..run.clone() }.serve();
                    served.assert_equals(&expected, &format!("{model}, {layout}, {mode:?}, W = {max_num_seqs}"));
                }
            }
        }
    }
}

#[test]
fn the_other_families_give_the_same_tokens_in_every_mode_overlap_and_packing() {
    for model in OTHERS {
        let run = Run::of(model, Layout::LastExited, early(model));
        let expected = alone(&run);
        for mode in [REFILL, Mode::Refill { min_coda_batch: 3 }, Mode::NoRefill] {
            for (overlap, (max_num_seqs, max_num_batched_tokens)) in
                OVERLAPS.into_iter().zip([(3, 1024), (12, 7), (5, 16)])
            {
                let served = Run { mode, overlap, max_num_seqs, max_num_batched_tokens, ..run.clone() }.serve();
                served.assert_equals(&expected, &format!("{model}, {mode:?}, {overlap:?}, W = {max_num_seqs}"));
            }
        }
    }
}

#[test]
fn overlap_changes_neither_batches_nor_tokens() {
    for model in MODELS {
        for mode in [REFILL, Mode::Refill { min_coda_batch: 3 }, Mode::NoRefill, Mode::ContinuousBatching] {
            let run = Run { mode, ..Run::of(model, Layout::LastExited, early(model)) };
            let expected = run.serve();
            for overlap in OVERLAPS {
                let served = Run { overlap, ..run.clone() }.serve();
                let what = format!("{model}, {mode:?}, {overlap:?}");
                assert_eq!(served.batches, expected.batches, "{what}");
                served.assert_equals(&expected, &what);
            }
        }
    }
}

#[test]
fn at_full_depth_every_mode_gives_the_same_tokens() {
    for model in MODELS {
        for layout in Layout::ALL {
            let run = Run::of(model, layout, full_depth(model));
            let expected = alone(&run);
            for mode in [REFILL, Mode::NoRefill, Mode::ContinuousBatching] {
                let served = Run { mode, ..run.clone() }.serve();
                served.assert_equals(&expected, &format!("{model}, {layout}, {mode:?}"));
            }
        }
        // With a plane per loop it does not matter which layout has them.
        let tokens = |layout| Run::of(model, layout, full_depth(model)).serve();
        tokens(Layout::DepthIndexed).assert_equals(&tokens(Layout::LastExited), model);
    }
}

#[test]
fn where_every_loop_has_a_plane_chunking_changes_nothing() {
    for model in MODELS {
        for (layout, exits) in [(Layout::DepthIndexed, full_depth(model)), (Layout::LastExited, early(model))] {
            let run = Run::of(model, layout, exits);
            let expected = alone(&run);
            for max_num_batched_tokens in [1, 7, 16, 40] {
                for mode in [REFILL, Mode::NoRefill] {
                    let served = Run { mode, max_num_batched_tokens, ..run.clone() }.serve();
                    served.assert_equals(&expected, &format!("{model}, {layout}, M = {max_num_batched_tokens}"));
                }
            }
        }
    }
}

/// A later chunk finds only the last loop of an earlier one in a plane that all loops share, but its own tokens at the
/// loop that they are in. Prompts that stay whole are untouched, whatever they are packed with.
#[test]
fn in_shared_planes_another_chunking_is_another_prompt() {
    for model in MODELS {
        for layout in [Layout::Shared, Layout::FirstThenShared] {
            let run = Run::of(model, layout, early(model));
            let whole = run.serve();
            let chunked = Run { max_num_batched_tokens: 16, ..run.clone() }.serve();
            let split = |request: &usize| {
                let chunk = |row: &&engine::batch::Row| row.request.0 as usize == *request;
                let prefills = chunked.batches.iter().filter(|batch| batch.stage == Stage::Prefill);
                prefills.flat_map(|batch| batch.rows.iter().filter(chunk)).count() > 1
            };
            let differing = chunked.differing(&whole);
            assert!(differing.iter().all(split), "{model}, {layout}: a whole prompt changed, one of {differing:?}");
            assert!(!differing.is_empty(), "{model}, {layout}: chunking was expected to show");
            // The same chunks again, under another overlap and mode: the same tokens, if the chunks are the same.
            for overlap in OVERLAPS {
                let again = Run { max_num_batched_tokens: 16, overlap, ..run.clone() }.serve();
                again.assert_equals(&chunked, &format!("{model}, {layout}, {overlap:?}"));
            }
        }
    }
}

/// Continuous batching has no exits: it answers as if every token had run at full depth.
#[test]
fn continuous_batching_ignores_early_exits() {
    for model in MODELS {
        for layout in LAYOUTS_WITH_EARLY_EXITS {
            let run = Run { mode: Mode::ContinuousBatching, ..Run::of(model, layout, early(model)) };
            let served = run.serve();
            served.assert_equals(&Run { exits: full_depth(model), ..run.clone() }.serve(), model);
            let staged = Run { mode: REFILL, ..run }.serve();
            assert!(!served.differing(&staged).is_empty(), "{model}, {layout}: early exits were expected to show");
        }
    }
}

/// The same in a pool that is too small.
fn under_pressure(run: &Run, pressure: Pressure) -> Served {
    let served = run.tight(pressure).serve();
    assert!(served.preemptions > 2, "{}: {} preemptions", run.layout, served.preemptions);
    served
}

#[test]
fn offloading_changes_nothing() {
    for model in MODELS {
        for layout in LAYOUTS_WITH_EARLY_EXITS {
            for overlap in OVERLAPS {
                let run = Run { overlap, ..Run::of(model, layout, early(model)) }.with_long_outputs();
                let what = format!("{model}, {layout}, {overlap:?}");
                under_pressure(&run, Pressure::Offload).assert_equals(&run.serve(), &what);
            }
        }
    }
}

/// Recomputing runs at full depth, and all known tokens in one chunk. Where each loop has a plane of its own and nothing
/// left early, that writes the same KV again; otherwise it does not.
#[test]
fn recomputing_changes_nothing_only_at_full_depth_with_a_plane_per_loop() {
    for model in MODELS {
        let same = Run::of(model, Layout::DepthIndexed, full_depth(model)).with_long_outputs();
        under_pressure(&same, Pressure::Recompute).assert_equals(&same.serve(), model);
        for layout in LAYOUTS_WITH_EARLY_EXITS {
            let run = Run::of(model, layout, early(model)).with_long_outputs();
            let differing = under_pressure(&run, Pressure::Recompute).differing(&run.serve());
            assert!(!differing.is_empty(), "{model}, {layout}: recomputing was expected to show");
        }
    }
}

#[test]
fn a_longer_run_begins_with_the_shorter() {
    for model in MODELS {
        for layout in LAYOUTS_WITH_EARLY_EXITS {
            let run = Run::of(model, layout, early(model));
            let short = run.serve();
            let workload = run.workload.iter().map(|&(prompt, output)| (prompt, output + 4)).collect();
            let long = Run { workload, ..run.clone() }.serve();
            for request in 0..run.workload.len() {
                let output = short.output(request);
                assert_eq!(long.output(request)[..output.len()], *output, "{model}, {layout}, request {request}");
            }
        }
    }
}
