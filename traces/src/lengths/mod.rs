//! Prompt and output lengths: fixed, from a file, or drawn from a generator fitted to a data set.

pub mod generator;
pub mod quantiles;

use rand_pcg::Pcg64;

use crate::config::LengthsConfig;
use crate::error::TracesError;
use crate::file::Rows;
use crate::lengths::generator::Generator;
use crate::streams::{self, Purpose};

/// One request's prompt and output length, in tokens.
pub type Pair = (u32, u32);

/// Where the lengths of a workload come from.
#[derive(Clone, Debug)]
pub enum LengthSource {
    /// All requests alike.
    Fixed(Pair),
    /// A generator, drawn from the seed's lengths stream.
    Generated(Generator),
}

impl LengthSource {
    /// Fails if the filter `max_total_tokens` leaves hardly anything of a generator.
    pub fn new(config: &LengthsConfig, max_total_tokens: u32) -> Result<Self, TracesError> {
        let generator = match config {
            LengthsConfig::Fixed { prompt_tokens, output_tokens } => {
                return Ok(Self::Fixed((prompt_tokens.get(), output_tokens.get())));
            }
            LengthsConfig::Sharegpt => Generator::sharegpt(max_total_tokens),
            LengthsConfig::Alpaca => Generator::alpaca(max_total_tokens),
            LengthsConfig::Arxiv => Generator::arxiv(max_total_tokens),
        };
        Ok(Self::Generated(generator?))
    }

    /// An endless stream of lengths; the same seed gives the same stream.
    pub fn stream(&self, seed: u64) -> Lengths<'_> {
        match self {
            Self::Fixed(pair) => Lengths::Fixed(*pair),
            Self::Generated(generator) => Lengths::Generated(generator, streams::stream(seed, Purpose::Lengths)),
        }
    }
}

/// A stream of lengths: ends with a file's rows, never otherwise.
#[derive(Clone, Debug)]
pub enum Lengths<'a> {
    /// All alike.
    Fixed(Pair),
    /// Drawn.
    Generated(&'a Generator, Pcg64),
    /// A file's rows, and the next one's number.
    File(&'a Rows, usize),
}

impl Iterator for Lengths<'_> {
    type Item = Pair;

    fn next(&mut self) -> Option<Pair> {
        match self {
            Self::Fixed(pair) => Some(*pair),
            Self::Generated(generator, rng) => Some(generator.draw(rng)),
            Self::File(rows, next) => {
                let pair = rows.lengths(*next);
                *next += 1;
                pair
            }
        }
    }
}
