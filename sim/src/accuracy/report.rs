//! What the outcomes say, as a table, files for scripts and a plot.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use reports::chart::{Axis, Figure, Series, lines};
use reports::{Cell, Grid, ReportError};
use serde::Serialize;

use super::condition::Leaving;
use super::questions::Question;
use super::statistics::{Paired, Share};
use super::{Answered, Outcome};

/// All conditions on the same questions; the first is what the others are set against.
#[derive(Debug, Serialize)]
pub struct Accuracy {
    /// The model's folder, the tasks' file and the device, as they were named.
    pub about: BTreeMap<&'static str, String>,
    conditions: Vec<Figures>,
    kinds: Vec<KindFigures>,
}

/// One condition.
#[derive(Debug, Serialize)]
struct Figures {
    condition: String,
    questions: usize,
    accuracy: Option<Share>,
    /// Of the questions in the upper half of their task's range of difficulties.
    hard_accuracy: Option<Share>,
    against_first: Option<Paired>,
    /// Loops a token, without the first of each answer.
    mean_depth: Option<f64>,
    mean_depth_with_first: Option<f64>,
    /// -ln p of a reference's token, up to and with the first that was not chosen.
    nats_per_token: Option<f64>,
    tokens_per_s: Option<f64>,
    #[serde(skip)]
    series: &'static str,
}

/// One condition on one kind of questions.
#[derive(Debug, Serialize)]
struct KindFigures {
    condition: String,
    task: String,
    difficulty: Option<u32>,
    questions: usize,
    accuracy: Option<Share>,
    mean_depth: Option<f64>,
}

/// The files that a report writes.
pub fn outputs(dir: &Path) -> [PathBuf; 5] {
    ["accuracy.csv", "accuracy_by_task.csv", "accuracy.json", "accuracy.svg", "accuracy.png"].map(|name| dir.join(name))
}

impl Accuracy {
    /// Computes everything from the outcomes.
    pub fn of(about: BTreeMap<&'static str, String>, questions: &[Question], answered: &[Answered]) -> Self {
        let hard = hard(questions);
        let first = answered.first().map(|first| first.outcomes.as_slice()).unwrap_or_default();
        let conditions = answered.iter().map(|this| Figures::of(this, first, &hard)).collect();
        let mut kinds: BTreeMap<(&str, Option<u32>), Vec<usize>> = BTreeMap::new();
        for (index, question) in questions.iter().enumerate() {
            if let Some(task) = &question.task {
                kinds.entry((task, question.difficulty)).or_default().push(index);
            }
        }
        let kinds = answered.iter().flat_map(|this| {
            kinds.iter().map(|((task, difficulty), indices)| {
                let outcomes: Vec<Outcome> = indices.iter().map(|&index| this.outcomes[index]).collect();
                KindFigures {
                    condition: this.condition.to_string(),
                    task: (*task).into(),
                    difficulty: *difficulty,
                    questions: outcomes.len(),
                    accuracy: share(&outcomes),
                    mean_depth: mean_depth(&outcomes),
                }
            })
        });
        Self { about, conditions, kinds: kinds.collect() }
    }

    /// For a terminal.
    pub fn text(&self) -> String {
        self.grid().text()
    }

    /// Writes the files of [`outputs`], each whole or not at all.
    ///
    /// # Errors
    /// The first file that could not be written or drawn.
    pub fn write(&self, dir: &Path) -> Result<(), ReportError> {
        let [table, by_task, json, ..] = outputs(dir);
        let write = |path: &Path, text: String| {
            let written = files::write_whole(path, text.as_bytes());
            written.map(drop).map_err(|source| ReportError::Io { path: path.into(), source })
        };
        write(&table, self.grid().csv())?;
        write(&by_task, self.by_task().csv())?;
        let text = serde_json::to_string_pretty(self);
        write(&json, text.map_err(|source| ReportError::Json { path: json.clone(), source })? + "\n")?;
        self.figure().write(dir, "accuracy", true).map(drop)
    }

    fn grid(&self) -> Grid {
        let mut grid = Grid::new([
            "condition",
            "questions",
            "accuracy %",
            "se",
            "harder half %",
            "difference, points",
            "se of difference",
            "lost",
            "won",
            "McNemar p",
            "questions for a point",
            "mean depth",
            "with first token",
            "nats/token",
            "tokens/s",
        ]);
        for figures in &self.conditions {
            let paired = figures.against_first;
            let of_pairs = |of: fn(Paired) -> f64| Cell::from(paired.map(of));
            grid.push(vec![
                Cell::text(&figures.condition),
                Cell::from(figures.questions as f64),
                Cell::from(figures.accuracy.map(|share| 100.0 * share.mean)),
                Cell::from(figures.accuracy.map(|share| 100.0 * share.standard_error)),
                Cell::from(figures.hard_accuracy.map(|share| 100.0 * share.mean)),
                of_pairs(|paired| 100.0 * paired.difference),
                Cell::from(paired.and_then(|paired| paired.standard_error).map(|error| 100.0 * error)),
                of_pairs(|paired| paired.lost as f64),
                of_pairs(|paired| paired.won as f64),
                of_pairs(|paired| paired.p_value),
                Cell::from(paired.and_then(|paired| paired.questions_for_a_point).map(f64::ceil)),
                Cell::from(figures.mean_depth),
                Cell::from(figures.mean_depth_with_first),
                Cell::from(figures.nats_per_token),
                Cell::from(figures.tokens_per_s),
            ]);
        }
        grid
    }

    fn by_task(&self) -> Grid {
        let columns = ["condition", "task", "difficulty", "questions", "accuracy", "standard_error", "mean_depth"];
        let mut grid = Grid::new(columns);
        for kind in &self.kinds {
            grid.push(vec![
                Cell::text(&kind.condition),
                Cell::text(&kind.task),
                Cell::from(kind.difficulty.map(f64::from)),
                Cell::from(kind.questions as f64),
                Cell::from(kind.accuracy.map(|share| share.mean)),
                Cell::from(kind.accuracy.map(|share| share.standard_error)),
                Cell::from(kind.mean_depth),
            ]);
        }
        grid
    }

    /// Accuracy over mean depth and over throughput, a curve per gate and layout.
    fn figure(&self) -> Figure {
        let panel = |title: &str, x: Axis, of: fn(&Figures) -> Option<f64>| {
            let mut curves: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
            for figures in &self.conditions {
                if let (Some(x), Some(share)) = (of(figures), figures.accuracy) {
                    let layout =
                        figures.condition.split_once(':').map_or(String::new(), |(_, name)| format!(", {name}"));
                    let points = curves.entry(format!("{}{layout}", figures.series)).or_default();
                    points.push((x, 100.0 * share.mean));
                }
            }
            let series = (0..).zip(curves).map(|(style, (name, mut points))| {
                points.sort_by(|a, b| a.0.total_cmp(&b.0));
                Series::new(name, style, points)
            });
            lines(title, x, Axis::linear("right answers (%)"), series.collect())
        };
        let depth = panel("What a loop less costs", Axis::linear("mean depth (loops)"), |f| f.mean_depth);
        let speed = panel("What speed costs", Axis::linear("measured throughput (tokens/s)"), |f| f.tokens_per_s);
        Figure::new("Right answers under early exits", vec![depth, speed])
    }
}

impl Figures {
    fn of(this: &Answered, first: &[Outcome], hard: &[bool]) -> Self {
        let outcomes = &this.outcomes;
        let of_hard: Vec<Outcome> =
            outcomes.iter().zip(hard).filter(|(_, hard)| **hard).map(|(outcome, _)| *outcome).collect();
        let sum = |of: fn(&Outcome) -> f64| outcomes.iter().map(of).sum::<f64>();
        let tokens = sum(|outcome| outcome.tokens.into());
        Self {
            condition: this.condition.to_string(),
            questions: outcomes.len(),
            accuracy: share(outcomes),
            hard_accuracy: share(&of_hard),
            against_first: Paired::of(outcomes.iter().zip(first).map(|(this, first)| (this.right, first.right))),
            mean_depth: mean_depth(outcomes),
            mean_depth_with_first: ratio(sum(|outcome| outcome.loops.into()), tokens),
            nats_per_token: ratio(sum(|outcome| outcome.nats), sum(|outcome| outcome.scored.into())),
            tokens_per_s: ratio(tokens, this.elapsed_s),
            series: match this.condition.leaving {
                Leaving::Loops(_) => "fixed depth",
                Leaving::Gate(gate, _) => gate.name(),
            },
        }
    }
}

fn ratio(of: f64, by: f64) -> Option<f64> {
    (by > 0.0).then(|| of / by)
}

fn share(outcomes: &[Outcome]) -> Option<Share> {
    Share::of(outcomes.iter().filter(|outcome| outcome.right).count(), outcomes.len())
}

/// Over the tokens whose exit is decided: all but the first of each answer.
fn mean_depth(outcomes: &[Outcome]) -> Option<f64> {
    let decided: u32 = outcomes.iter().map(|outcome| outcome.tokens.saturating_sub(1)).sum();
    let loops: u32 = outcomes.iter().map(|outcome| outcome.loops - outcome.first_loops).sum();
    ratio(loops.into(), decided.into())
}

/// Which questions lie in the upper half of their task's range of difficulties.
fn hard(questions: &[Question]) -> Vec<bool> {
    let mut ranges: BTreeMap<&Option<String>, (u32, u32)> = BTreeMap::new();
    for question in questions {
        if let Some(difficulty) = question.difficulty {
            let (least, most) = ranges.entry(&question.task).or_insert((difficulty, difficulty));
            (*least, *most) = ((*least).min(difficulty), (*most).max(difficulty));
        }
    }
    let is_hard = |question: &Question| {
        let (difficulty, (least, most)) = (question.difficulty?, ranges.get(&question.task)?);
        Some(2 * difficulty > least + most)
    };
    questions.iter().map(|question| is_hard(question).unwrap_or(false)).collect()
}
