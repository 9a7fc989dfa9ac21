//! Calibration from outside: a server that is only seen through its answers.
//!
//! Rounds of C requests at once, with prompts of L tokens. While all C are between their first and their last token nothing
//! but decode steps runs, and every gap between tokens is a step of C rows. The first token of a request that is alone comes
//! behind its prefill.
//!
//! What is seen is a whole step at full depth, `delta + gamma B + alpha N_c`. So it says nothing of the loop: how a step is
//! shared out between prelude, loops and coda, what a token costs that leaves early, what a launch adds, and how much of a time
//! is the host's, the server's or the way to it.

mod fit;
mod steps;

use std::time::Duration;

use client::{Dialect, Endpoint, Load};
use engine::executor::Clock;
use engine::request::{Arrival, Request, RequestId};
use engine::units::{Depth, Nanos};

use crate::error::CalibrateError;
use crate::measurements::Measurement;

pub use fit::{CANNOT_TELL, Outside};

/// Steps that a point is timed over, at least.
pub const STEPS_MIN: usize = 8;

/// A round that takes longer has failed.
const TIMEOUT: Duration = Duration::from_secs(300);

/// What is asked of a server.
#[derive(Clone, Debug)]
pub struct Grid {
    /// Requests at once, rising.
    pub batches: Vec<u32>,
    /// Prompt lengths of rounds whose steps are timed, rising.
    pub contexts: Vec<u32>,
    /// Prompt lengths of single requests whose first tokens are timed, rising.
    pub prompts: Vec<u32>,
    /// Output tokens of a request in a round.
    pub output_tokens: u32,
    /// The loops of the server's model, which is what a whole step runs.
    pub loops: Depth,
}

/// How far the rounds came.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rounds {
    /// What was timed.
    pub rows: Vec<Measurement>,
    /// Times that the whole grid was gone through.
    pub complete: u32,
    /// What was left out, and why; the first of each kind.
    pub left_out: Vec<String>,
}

/// Goes through the grid until the budget is over, but at least `rounds_min` times.
///
/// # Errors
/// The client cannot begin, or the server failed a request.
pub fn measure(
    (endpoint, dialect): (&Endpoint, &Dialect),
    grid: &Grid,
    (clock, budget): (&dyn Clock, Nanos),
    rounds_min: u32,
) -> Result<Rounds, CalibrateError> {
    let mut rounds = Rounds::default();
    let mut next_id = 0;
    while rounds.complete < rounds_min || clock.now() < budget {
        for &prompt_tokens in &grid.prompts {
            let run = ask((endpoint, dialect), (1, prompt_tokens, 2), &mut next_id)?;
            rounds.rows.push(steps::prefill(&run, prompt_tokens, rounds.complete));
        }
        // Rounds of few and of many alternate, so that a drift of the machine meets all alike.
        for &context in &grid.contexts {
            for &batch in &grid.batches {
                let run = ask((endpoint, dialect), (batch, context, grid.output_tokens), &mut next_id)?;
                match steps::decode(&run, batch, grid.loops, rounds.complete) {
                    Ok(row) => rounds.rows.push(row),
                    Err(why) if rounds.complete == 0 => rounds.left_out.push(why),
                    Err(_) => {}
                }
            }
        }
        rounds.complete += 1;
        eprintln!("round {}: {} times, {:.1} s", rounds.complete, rounds.rows.len(), clock.now().as_secs());
    }
    Ok(rounds)
}

/// `batch` requests at once; every one must be answered.
fn ask(
    (endpoint, dialect): (&Endpoint, &Dialect),
    (batch, prompt_tokens, output_tokens): (u32, u32, u32),
    next_id: &mut u32,
) -> Result<client::Run, CalibrateError> {
    // Prompts never repeat, so that no server finds one in its cache.
    let first = *next_id;
    *next_id = next_id.wrapping_add(batch);
    let arrivals = (0..batch).map(move |number| Arrival {
        request: Request {
            id: RequestId(first.wrapping_add(number)),
            arrival: Nanos::ZERO,
            prompt_tokens,
            max_output_tokens: output_tokens,
        },
        output_tokens,
        cancel_after: None,
    });
    let server = |reason: String| CalibrateError::Server { endpoint: endpoint.to_string(), reason };
    let load = Load::Closed { concurrency: batch, think: Nanos::ZERO };
    let run = client::run(endpoint, dialect, arrivals, load, TIMEOUT).map_err(server)?;
    match run.seen.iter().find_map(|seen| seen.result.as_ref().err()) {
        Some(failure) => Err(server(format!(
            "one of {batch} requests of {prompt_tokens} and {output_tokens} tokens failed: {} ({})",
            failure.kind, failure.said
        ))),
        None => Ok(run),
    }
}

#[cfg(test)]
mod tests {
    use client::{Answer, Health, Run, Seen};
    use engine::architecture::Architecture;
    use engine::profile::{Buckets, DeviceSpec, StageCost};

    use super::*;

    const STEP: StageCost = StageCost { delta_ms: 2.0, floor_ms: 0.0, gamma_us: 150.0, alpha_ns: 400.0 };

    /// A server that prefills one prompt after the other, 1 ms each and 10 us a token, and then steps at [`STEP`]'s cost.
    /// Every event is read up to 0.1 ms late, by no pattern.
    fn run(batch: u32, prompt_tokens: u32, tokens: u32, late: &mut impl FnMut() -> f64) -> Run {
        let mut times: Vec<Vec<f64>> = vec![Vec::new(); batch as usize];
        let mut now = 0.0;
        for stream in &mut times {
            now += 1.0 + 0.01 * f64::from(prompt_tokens);
            stream.push(now);
        }
        for made in 1..tokens {
            now += STEP.time_ms(batch, u64::from(batch) * u64::from(prompt_tokens + made));
            times.iter_mut().for_each(|stream| stream.push(now));
        }
        let request = Request { id: RequestId(0), arrival: Nanos::ZERO, prompt_tokens, max_output_tokens: tokens };
        let arrival = Arrival { request, output_tokens: tokens, cancel_after: None };
        let seen = times.into_iter().map(|stream| {
            let read: Vec<Nanos> = stream.into_iter().map(|ms| Nanos::from_micros(1e3 * (ms + late()))).collect();
            let (first, last) = (read[0], read[read.len() - 1]);
            let answer = Answer { output_tokens: tokens, tokens: read, first, last, ..Answer::default() };
            Seen { arrival, due: Nanos::ZERO, sent: Nanos::ZERO, result: Ok(answer) }
        });
        Run { seen: seen.collect(), health: Health::default() }
    }

    #[test]
    fn a_servers_coefficients_come_back_with_intervals_that_hold_them() {
        let model = Architecture::builtin("tiny-ouro").expect("it is built in");
        let mut state = 7_u64;
        let mut late = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f64 / (1_u64 << 24) as f64 / 10.0
        };
        let mut rounds = Rounds::default();
        for round in 0..3 {
            for prompt in [1, 50, 100, 200, 300, 400, 512] {
                rounds.rows.push(steps::prefill(&run(1, prompt, 2, &mut late), prompt, round));
            }
            for context in [32, 128, 512] {
                for batch in [1, 2, 4, 8, 16] {
                    let row = steps::decode(&run(batch, context, 40, &mut late), batch, model.r_max, round);
                    rounds.rows.push(row.expect("all are there at once"));
                }
            }
        }
        let outside = Outside::new(&rounds, &model, Buckets::Exact).expect("a full grid");
        let known = [2.0, 0.0, 150.0, 400.0];
        for ((name, value, half), known) in outside.coefficients().zip(known) {
            if let Some(half) = half {
                assert!((value - known).abs() <= half, "{name}: {value} +- {half} for {known}");
                assert!(half < 0.1 * known, "{name}: +- {half}");
            }
        }
        let device = DeviceSpec { name: "it".into(), bandwidth_gb_per_s: f64::INFINITY, compute_tflops: f64::INFINITY };
        let profile = outside.profile(&model, &device, Buckets::Exact, ("it", "a test")).expect("it can be used");
        // What the simulator makes of it is the step that was seen, and the prompt.
        let step_ms = f64::from(model.r_max.0) * profile.core_ms(8, 8 * 256);
        assert!((step_ms / STEP.time_ms(8, 8 * 256) - 1.0).abs() < 0.02, "{step_ms} ms");
        let prefill_ms = profile.prefill_ms([(0, 256)]);
        assert!((prefill_ms / (1.0 + 2.56) - 1.0).abs() < 0.05, "{prefill_ms} ms");
    }

    #[test]
    fn a_server_that_runs_fewer_at_once_is_told_apart() {
        // The second begins when the first has ended.
        let mut one = run(1, 16, 20, &mut || 0.0);
        let mut two = run(1, 16, 20, &mut || 0.0);
        let Ok(answer) = &mut two.seen[0].result else { panic!("it was answered") };
        answer.tokens.iter_mut().for_each(|at| *at += Nanos(1_000_000_000));
        (answer.first, answer.last) = (answer.tokens[0], answer.tokens[19]);
        one.seen.append(&mut two.seen);
        let why = steps::decode(&one, 2, Depth(4), 0).expect_err("they never run together");
        assert!(why.contains("does the server run that many at once"), "{why}");
    }
}
