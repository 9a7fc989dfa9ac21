//! Comparing two runs of the same requests.

use std::fmt;

use crate::live::Transcripts;

/// How far two runs are apart.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Comparison {
    /// Output tokens compared.
    pub tokens: usize,
    /// The largest root mean square difference of a token's logits, relative to theirs.
    pub max_error: f64,
    /// Requests that took another token where the two best were close (within eight times the tolerance, since single
    /// logits differ by more than their root mean square); compared up to there.
    pub near_ties: usize,
}

/// The first place where two runs are too far apart.
#[derive(Clone, Debug, PartialEq)]
pub struct Mismatch {
    /// The request.
    pub request: u32,
    /// The output token; its number is the run's length where one run has fewer tokens.
    pub token: usize,
    /// What differs.
    pub what: String,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "request {}, output token {}: {}", self.request, self.token, self.what)
    }
}

/// Compares tokens, exit depths and logits, which both runs must have kept. A tolerance of 0 asks for the same bits.
///
/// # Errors
/// The first mismatch.
pub fn compare(expected: &Transcripts, got: &Transcripts, tolerance: f64) -> Result<Comparison, Mismatch> {
    let mut comparison = Comparison::default();
    for (request, expected) in expected.iter() {
        let got = got.get(request);
        let mismatch = |token, what| Mismatch { request: request.0, token, what };
        for token in 0..expected.output.len() {
            if got.logits.len() <= token || expected.logits.len() <= token {
                return Err(mismatch(token, "no logits on one side".into()));
            }
            let (a, b) = (&expected.logits[token], &got.logits[token]);
            let error = relative_error(a, b);
            // Not `error > tolerance`, which a NaN would pass.
            let close = error <= tolerance;
            if !close {
                return Err(mismatch(token, format!("logits differ by {error:.2e}, allowed are {tolerance:.2e}")));
            }
            comparison.max_error = comparison.max_error.max(error);
            comparison.tokens += 1;
            if expected.depths[token] != got.depths[token] {
                let (expected, got) = (expected.depths[token], got.depths[token]);
                return Err(mismatch(token, format!("left at depth {got}, expected {expected}")));
            }
            if expected.output[token] != got.output[token] {
                if tolerance == 0.0 || gap(a) > 8.0 * tolerance {
                    let (expected, got) = (expected.output[token], got.output[token]);
                    return Err(mismatch(token, format!("chose {got}, expected {expected}")));
                }
                comparison.near_ties += 1;
                break;
            }
        }
        if expected.output.len() != got.output.len() {
            let what = format!("{} tokens, expected {}", got.output.len(), expected.output.len());
            return Err(mismatch(expected.output.len().min(got.output.len()), what));
        }
    }
    Ok(comparison)
}

/// The length of a vector.
fn norm(values: impl Iterator<Item = f64>) -> f64 {
    values.map(|x| x * x).sum::<f64>().sqrt()
}

fn relative_error(expected: &[f32], got: &[f32]) -> f64 {
    if expected.len() != got.len() || got.iter().any(|x| !x.is_finite()) {
        return f64::INFINITY;
    }
    let difference = norm(expected.iter().zip(got).map(|(a, b)| f64::from(*a) - f64::from(*b)));
    difference / norm(expected.iter().map(|x| f64::from(*x)))
}

/// The distance between the two best logits, relative to the root mean square of all.
fn gap(logits: &[f32]) -> f64 {
    let mut sorted: Vec<f32> = logits.to_vec();
    sorted.sort_by(|a, b| b.total_cmp(a));
    let root_mean_square = norm(logits.iter().map(|x| f64::from(*x))) / (logits.len() as f64).sqrt();
    f64::from(sorted[0] - sorted[1]) / root_mean_square
}
