//! `sim accuracy`: what early exits cost in right answers, asked of a real model.
//!
//! Questions are answered under conditions, in parts, and each part's outcomes are in the journal before the next begins.
//! Everything that is reported is computed from the journal.

mod ask;
mod condition;
mod model;
mod questions;
mod report;
mod statistics;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use condition::{Condition, GateKind, Leaving};
pub use model::Model;
pub use questions::{Question, QuestionsError, Scorer};
pub use report::{Accuracy, outputs};
pub use statistics::{Paired, Share};

use crate::json_lines::{self, JournalError, JsonLines};
use crate::run::key;
use crate::run::output::bar;

/// Questions that are answered together, and lost together if the program is killed.
const PART: usize = 512;

/// Changes when outcomes of older programs must not be read.
const FORMAT: u32 = 1;

/// Why questions were not answered.
#[derive(Debug, thiserror::Error)]
pub enum AccuracyError {
    /// The journal.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The model's folder.
    #[error("{}: {source}", path.display())]
    Folder {
        /// Where it is.
        path: PathBuf,
        /// What the file system said.
        source: std::io::Error,
    },
    /// A condition does not suit the model, a question is too long, or the device failed.
    #[error("{0}")]
    Model(String),
}

/// What came of one question.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The answer counts.
    pub right: bool,
    /// Its tokens, an end token included.
    pub tokens: u32,
    /// Loops of all of them.
    pub loops: u32,
    /// Loops of the first, which the prompt's pass makes.
    pub first_loops: u32,
    /// Sum of -ln p of the reference's tokens, up to and with the first that was not chosen.
    pub nats: f64,
    /// How many those are.
    pub scored: u32,
}

/// A line of the journal.
#[derive(Debug, Serialize, Deserialize)]
struct Part {
    key: String,
    condition: String,
    /// Wall time from the first prompt to the last token.
    elapsed_s: f64,
    outcomes: Vec<Outcome>,
}

/// What one condition gave.
#[derive(Clone, Debug)]
pub struct Answered {
    /// The condition.
    pub condition: Condition,
    /// By question.
    pub outcomes: Vec<Outcome>,
    /// Wall time of all parts.
    pub elapsed_s: f64,
}

/// Where the outcomes of a folder are.
pub fn journal_file(dir: &Path) -> PathBuf {
    dir.join("answers.jsonl")
}

/// Answers what the journal in `dir` does not have yet, and gives every condition's outcomes, in order.
///
/// # Errors
/// See [`AccuracyError`]. Conditions and questions are checked before the first is answered.
pub fn answer(
    model: &mut Model,
    questions: &[Question],
    conditions: &[Condition],
    max_tokens: u32,
    dir: &Path,
) -> Result<Vec<Answered>, AccuracyError> {
    let asked: Vec<_> = questions
        .iter()
        .map(|question| model.encode(question, max_tokens))
        .collect::<Result<_, _>>()
        .map_err(AccuracyError::Model)?;
    let longest = asked.iter().map(|asked| asked.prompt.len()).max().unwrap_or(0) as u32 + max_tokens;
    if let Some(context) = model.folder().config.context_tokens.filter(|&context| u64::from(longest) > context) {
        return Err(AccuracyError::Model(format!(
            "the longest question and --max-tokens {max_tokens} are {longest} tokens together, and the model was made for \
             {context}: lower --max-tokens"
        )));
    }
    for condition in conditions {
        condition.scheduler(model.folder().architecture(), longest).map_err(AccuracyError::Model)?;
    }
    let of_model = model.key();
    let of_model = of_model.map_err(|source| AccuracyError::Folder { path: model.folder().path().into(), source })?;
    let path = journal_file(dir);
    let journal = JsonLines::open(path.clone())?;
    let mut known: BTreeMap<String, Part> = BTreeMap::new();
    for part in json_lines::read::<Part>(&path)? {
        known.entry(part.key.clone()).or_insert(part);
    }
    let progress = bar("questions", (questions.len() * conditions.len()) as u64, "answers");
    let mut all = Vec::new();
    for condition in conditions {
        progress.set_message(condition.to_string());
        let mut answered = Answered { condition: *condition, outcomes: Vec::new(), elapsed_s: 0.0 };
        for (questions, asked) in questions.chunks(PART).zip(asked.chunks(PART)) {
            let name = condition.to_string();
            let key = key::hash(&(FORMAT, &of_model, &name, questions, max_tokens));
            let part = match known.remove(&key) {
                Some(part) if part.outcomes.len() == questions.len() => part,
                _ => {
                    let (answers, elapsed_s) = model.answer(condition, longest, asked).map_err(AccuracyError::Model)?;
                    let outcomes = questions.iter().zip(&answers).map(|(question, answer)| {
                        let said = model.decode(&answer.tokens)?;
                        Ok(Outcome {
                            right: question.is_right(&said),
                            tokens: answer.tokens.len() as u32,
                            loops: answer.depths.iter().map(|&depth| u32::from(depth)).sum(),
                            first_loops: answer.depths.first().map_or(0, |&depth| depth.into()),
                            nats: answer.nats,
                            scored: answer.scored,
                        })
                    });
                    let outcomes = outcomes.collect::<Result<_, _>>().map_err(AccuracyError::Model)?;
                    let part = Part { key, condition: name, elapsed_s, outcomes };
                    journal.append(&part)?;
                    part
                }
            };
            progress.inc(questions.len() as u64);
            answered.elapsed_s += part.elapsed_s;
            answered.outcomes.extend(part.outcomes);
        }
        all.push(answered);
    }
    progress.finish_and_clear();
    Ok(all)
}
