//! What each mode does with the same three requests on two slots: a line a step, so that a reader sees what refill is.
//!
//! `a2` is the second token of request a. In a core step the number behind the dot is the loop that runs.

use std::fmt::Write;

use engine::batch::Stage;
use engine::scheduler::{Mode, Overlap, SchedulerConfig};
use engine::units::{Depth, Nanos};
use tests::{Exits, World, arrival, config, roofline};

/// Three tokens for each of a, b and c. The third token of a runs all four loops, its second and all of b leave after two,
/// those of c after three.
fn world(mode: Mode) -> World {
    let exits = vec![vec![2, 4], vec![2, 2], vec![3, 3]];
    World {
        config: SchedulerConfig { r_max: Depth(4), overlap: Overlap::Lookahead, ..config(mode, 2) },
        arrivals: (0..3).map(|id| arrival(id, Nanos::ZERO, 4, 3)).collect(),
        exits: Exits(exits),
        profile: roofline(),
    }
}

fn timeline(mode: Mode) -> String {
    let mut lines = String::new();
    for step in world(mode).run().steps {
        let batch = &step.outcome.batch;
        write!(lines, "{:8}", batch.stage.name()).expect("a string takes any text");
        for row in &batch.rows {
            let name = ['a', 'b', 'c'][row.request.0 as usize];
            write!(lines, " {name}{}", row.token + 1).expect("a string takes any text");
            if batch.stage == Stage::Core {
                write!(lines, ".{}", row.depth).expect("a string takes any text");
            }
        }
        lines.push('\n');
    }
    lines
}

/// Every token runs all loops, in one launch a token.
#[test]
fn continuous_batching_runs_every_token_at_full_depth() {
    let expected = "\
prefill  a1 b1
forward  a2 b2
forward  a3 b3
prefill  c1
forward  c2
forward  c3
";
    assert_eq!(timeline(Mode::ContinuousBatching), expected);
}

/// Who leaves the loop waits for the others of its cohort.
#[test]
fn without_refill_the_core_batch_shrinks_until_all_have_left() {
    let expected = "\
prefill  a1 b1
prelude  a2 b2
core     a2.1 b2.1
core     a2.2 b2.2
coda     a2 b2
prelude  a3 b3
core     a3.1 b3.1
core     a3.2 b3.2
core     a3.3
core     a3.4
coda     b3 a3
prefill  c1
prelude  c2
core     c2.1
core     c2.2
core     c2.3
coda     c2
prelude  c3
core     c3.1
core     c3.2
core     c3.3
coda     c3
";
    assert_eq!(timeline(Mode::NoRefill), expected);
}

/// Who leaves the loop makes its token at once, and the core batch is filled up meanwhile: b is over while a3 still loops,
/// and c takes its place.
#[test]
fn refill_fills_up_the_core_batch() {
    let expected = "\
prefill  a1 b1
prelude  a2 b2
core     a2.1 b2.1
core     a2.2 b2.2
coda     a2 b2
prelude  a3 b3
core     a3.1 b3.1
core     a3.2 b3.2
coda     b3
prefill  c1
prelude  c2
core     a3.3 c2.1
core     a3.4 c2.2
coda     a3
core     c2.3
coda     c2
prelude  c3
core     c3.1
core     c3.2
core     c3.3
coda     c3
";
    assert_eq!(timeline(Mode::Refill { min_coda_batch: 1 }), expected);
}

/// Refill that decides by its costs when the coda runs. On a device without overheads waiting costs nothing and saves
/// nothing, so it does as K = 1 does.
#[test]
fn adaptive_refill_without_overheads_waits_for_nobody() {
    let adaptive = timeline(Mode::AdaptiveRefill(roofline().stage_costs()));
    assert_eq!(adaptive, timeline(Mode::Refill { min_coda_batch: 1 }));
}
