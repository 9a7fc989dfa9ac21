//! Questions with known answers: our own JSON lines, or GSM8K's.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// What GSM8K writes before the number that counts.
const GSM8K_MARK: &str = "####";

/// A question.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Question {
    /// What the model is asked.
    pub prompt: String,
    /// The right answer.
    pub answer: String,
    /// When an answer counts.
    pub scorer: Scorer,
    /// What kind of question it is.
    pub task: Option<String>,
    /// How hard it is among those of its kind; more is harder.
    pub difficulty: Option<u32>,
}

/// When an answer counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scorer {
    /// It is the right one, but for white space around it.
    Exact,
    /// Its last number is the right one, whatever else it says; commas between digits do not count.
    LastNumber,
}

/// Questions that cannot be read.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what the fields are")]
pub enum QuestionsError {
    /// The file system refused.
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: std::io::Error },
    /// A line that is no question.
    #[error("{}, line {line}: {reason}", path.display())]
    Line { path: PathBuf, line: usize, reason: String },
    /// A file without any.
    #[error("{} has no questions: write one JSON object a line, with `prompt` and `answer`", path.display())]
    Empty { path: PathBuf },
}

/// A line as it may be written; other fields are for others.
#[derive(Deserialize)]
struct Line {
    prompt: Option<String>,
    question: Option<String>,
    answer: String,
    scorer: Option<Scorer>,
    task: Option<String>,
    difficulty: Option<u32>,
}

impl Question {
    /// Reads a file of JSON lines: `prompt`, `answer` and, where they are there, `scorer` (`exact` or `last_number`), `task`
    /// and `difficulty`; or GSM8K's `question` and `answer`, of which the number behind `####` counts.
    ///
    /// # Errors
    /// See [`QuestionsError`]; lines are counted from 1.
    pub fn read(path: &Path) -> Result<Vec<Self>, QuestionsError> {
        let text = std::fs::read_to_string(path).map_err(|source| QuestionsError::Io { path: path.into(), source })?;
        let mut questions = Vec::new();
        for (line, text) in (1..).zip(text.lines()).filter(|(_, text)| !text.trim().is_empty()) {
            let question = Self::parse(text);
            questions.push(question.map_err(|reason| QuestionsError::Line { path: path.into(), line, reason })?);
        }
        if questions.is_empty() {
            return Err(QuestionsError::Empty { path: path.into() });
        }
        Ok(questions)
    }

    fn parse(text: &str) -> Result<Self, String> {
        let line: Line = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let (prompt, is_gsm8k) = match (line.prompt, line.question) {
            (Some(prompt), None) => (prompt, false),
            (None, Some(question)) => (question, true),
            _ => return Err("a question has a `prompt`, or in GSM8K's format a `question`".into()),
        };
        let (answer, scorer) = match is_gsm8k {
            false => (line.answer, Scorer::Exact),
            true => {
                let (_, answer) = line.answer.rsplit_once(GSM8K_MARK).ok_or("GSM8K's answer ends in `#### number`")?;
                (answer.trim().to_owned(), Scorer::LastNumber)
            }
        };
        let scorer = line.scorer.unwrap_or(scorer);
        if prompt.is_empty() {
            return Err("the prompt is empty: a model goes on from at least one token".into());
        }
        if scorer == Scorer::LastNumber && last_number(&answer).is_none() {
            return Err(format!("`last_number` compares numbers, and the answer `{answer}` has none"));
        }
        Ok(Self { prompt, answer, scorer, task: line.task, difficulty: line.difficulty })
    }

    /// Whether what the model said counts.
    pub fn is_right(&self, said: &str) -> bool {
        match self.scorer {
            Scorer::Exact => said.trim() == self.answer.trim(),
            Scorer::LastNumber => last_number(said).is_some_and(|number| Some(number) == last_number(&self.answer)),
        }
    }
}

/// The last number in a text.
fn last_number(text: &str) -> Option<f64> {
    let is_of_number = |c: char| c.is_ascii_digit() || matches!(c, ',' | '.' | '-');
    let mut numbers = text.split(|c: char| !is_of_number(c)).filter_map(|word| {
        let word = word.trim_matches([',', '.']).trim_end_matches('-').replace(',', "");
        // Behind a digit a minus stands between two numbers.
        let minus = word.rfind('-').map_or(0, |at| if at > 0 { at + 1 } else { 0 });
        word[minus..].parse().ok()
    });
    numbers.next_back()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_number_is_read_as_people_write_it() {
        for (text, number) in [
            ("72 apples and 5.", Some(5.0)),
            ("#### 1,234", Some(1234.0)),
            ("it is -3.50 dollars.", Some(-3.5)),
            ("10-4", Some(4.0)),
            ("none, at all.", None),
            ("- 7 -", Some(7.0)),
        ] {
            assert_eq!(last_number(text), number, "{text}");
        }
    }

    #[test]
    fn both_formats_are_read() {
        let ours =
            Question::parse(r#"{"prompt": "3+(4*(2-9)) mod 10=", "answer": " 5", "task": "e", "difficulty": 3}"#);
        let ours = ours.unwrap();
        assert_eq!((ours.scorer, ours.difficulty), (Scorer::Exact, Some(3)));
        assert!(ours.is_right("5\n") && !ours.is_right("15"));
        let gsm8k = Question::parse(r#"{"question": "How many?", "answer": "48/2 = <<48/2=24>>24\n#### 1,072"}"#);
        let gsm8k = gsm8k.unwrap();
        assert_eq!((gsm8k.answer.as_str(), gsm8k.scorer), ("1,072", Scorer::LastNumber));
        assert!(gsm8k.is_right("She sold 48, so it is $1072.") && !gsm8k.is_right("1072 or 3"));
    }

    #[test]
    fn what_is_no_question_is_said_to_be_none() {
        for (line, said) in [
            (r#"{"answer": "1"}"#, "a question has a `prompt`"),
            (r#"{"prompt": "", "answer": "1"}"#, "the prompt is empty"),
            (r#"{"question": "?", "answer": "1"}"#, "#### number"),
            (r#"{"prompt": "?", "answer": "x", "scorer": "last_number"}"#, "has none"),
            (r#"{"prompt": "?"}"#, "missing field `answer`"),
        ] {
            let error = Question::parse(line).unwrap_err();
            assert!(error.contains(said), "{line}: {error}");
        }
    }
}
