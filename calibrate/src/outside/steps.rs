//! From the times of tokens to the times of steps.

use client::{Answer, Run};
use engine::units::{Depth, Nanos};

use super::STEPS_MIN;
use crate::measurements::{Measurement, Point, Times, median};

/// The first token of a request that is alone: its prefill, and everything on the way.
pub(super) fn prefill(run: &Run, prompt_tokens: u32, round: u32) -> Measurement {
    let record = run.seen[0].record().expect("every request was answered");
    let tokens = counted(run).unwrap_or(f64::from(prompt_tokens)).round() as u32;
    let times = Times::once(record.ttft().as_millis());
    Measurement { line: 0, point: Point::prefill(1, 0, tokens), round, times }
}

/// The steps during which all of `batch` requests were between their first and last tokens, as one row; or why there are
/// too few of them.
pub(super) fn decode(run: &Run, batch: u32, loops: Depth, round: u32) -> Result<Measurement, String> {
    let answers: Vec<&Answer> = run.seen.iter().filter_map(|seen| seen.result.as_ref().ok()).collect();
    let asked = run.seen[0].arrival.request.prompt_tokens;
    let at = format!("{batch} requests of {asked} tokens at once");
    if answers.iter().any(|answer| answer.tokens.is_empty()) {
        return Err(format!("{at}: the stream does not tell tokens apart"));
    }
    let all_began = answers.iter().map(|answer| answer.first).max().unwrap_or_default();
    let one_ended = answers.iter().map(|answer| answer.last).min().unwrap_or_default();
    // In each stream the tokens of the same steps, from the first behind all beginnings.
    let quiet = |answer: &Answer| -> Vec<(Nanos, usize)> {
        let tokens = answer.tokens.iter().copied().zip(0..);
        tokens.filter(|&(time, _)| time >= all_began && time <= one_ended).collect()
    };
    let streams: Vec<_> = answers.iter().map(|answer| quiet(answer)).collect();
    let steps = streams.iter().map(Vec::len).min().unwrap_or(0);
    if steps <= STEPS_MIN {
        let reason = "does the server run that many at once? Give smaller --batches";
        return Err(format!("{at}: only {steps} tokens between the last first and the first last one: {reason}"));
    }
    // One stream may hear of a token late; the median of all is when the step was over.
    let ends: Vec<f64> =
        (0..steps).map(|step| median(streams.iter().map(|stream| stream[step].0.as_millis()))).collect();
    let gaps: Vec<f64> = ends.windows(2).map(|pair| pair[1] - pair[0]).collect();
    // A row that makes output token k reads its prompt and k tokens.
    let prompt = counted(run).unwrap_or(f64::from(asked));
    let reads = streams.iter().flat_map(|stream| stream[1..steps].iter().map(|&(_, token)| prompt + token as f64));
    let context = reads.sum::<f64>() / (streams.len() * (steps - 1)) as f64;
    let point = Point::step(batch, context.round() as u32, u32::from(loops.0));
    // The middle half: the client's own delays are at both ends, one late and the next early.
    let mut middle = gaps;
    middle.sort_by(f64::total_cmp);
    let middle = &middle[middle.len() / 4..middle.len() - middle.len() / 4];
    Ok(Measurement { line: 0, point, round, times: Times::of(middle) })
}

/// Prompt tokens by the server's own count, on average.
fn counted(run: &Run) -> Option<f64> {
    let counts = run.seen.iter().map(|seen| seen.result.as_ref().ok()?.prompt_tokens.map(f64::from));
    Some(counts.sum::<Option<f64>>()? / run.seen.len() as f64)
}
