//! `sim accuracy`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;
use miette::{Report, miette};
use sim::accuracy::{self, Accuracy, Condition, Model, Question, Scorer};
use sim::live::LiveDevice;

use super::show;

/// Output tokens at most, where the answer is the whole text, and where it is the last number of one.
const EXACT_TOKENS: u32 = 32;
const NUMBER_TOKENS: u32 = 512;

#[derive(Args)]
pub(super) struct AccuracyArguments {
    /// The model: a folder in Hugging Face's layout; the small one that comes with loopbatch by default.
    #[arg(long, value_name = "DIR")]
    model: Option<PathBuf>,
    /// Questions as JSON lines with `prompt` and `answer`, or GSM8K's; the model folder's heldout.jsonl by default.
    #[arg(long, value_name = "FILE")]
    tasks: Option<PathBuf>,
    /// Where it runs.
    #[arg(long, value_enum, default_value_t = LiveDevice::Cpu)]
    device: LiveDevice,
    /// A way of answering, such as loops=4, released=0.8, delayed=0.8, lookahead=0.8 or lookahead=0.8:shared; the first is
    /// what the others are set against. Every fixed depth and six thresholds of each gate by default.
    #[arg(long = "condition", value_name = "NAME")]
    conditions: Vec<Condition>,
    /// Only so many questions, evenly spread over the file.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    questions: Option<u32>,
    /// Output tokens at most; 32, or 512 where an answer is searched for its last number.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_tokens: Option<u32>,
    /// Wraps questions in the folder's chat template.
    #[arg(long)]
    chat: bool,
    /// CPU threads; 0 takes one a core.
    #[arg(long, value_name = "THREADS", default_value_t = 0)]
    threads: usize,
    /// Where to write; run again with the same to go on. reports/out/accuracy by default.
    #[arg(long, default_value = "reports/out/accuracy")]
    out: PathBuf,
}

pub(super) fn serve(arguments: &AccuracyArguments) -> Result<(), Report> {
    let folder = match &arguments.model {
        Some(folder) => folder.clone(),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../engine/models/tiny-loop"),
    };
    let tasks = arguments.tasks.clone().unwrap_or_else(|| folder.join("heldout.jsonl"));
    let all = Question::read(&tasks).map_err(|error| miette!("--tasks: {error}"))?;
    let questions = spread(&all, arguments.questions.map_or(all.len(), |count| count as usize));
    let said = |error: String| miette!("{error}");
    let mut model = Model::open(&folder, arguments.device, arguments.threads, arguments.chat).map_err(said)?;
    let conditions = match arguments.conditions.is_empty() {
        true => Condition::defaults(model.folder().architecture(), &model.gates()),
        false => arguments.conditions.clone(),
    };
    let is_number = |question: &Question| question.scorer == Scorer::LastNumber;
    let usual = if questions.iter().any(is_number) { NUMBER_TOKENS } else { EXACT_TOKENS };
    let max_tokens = arguments.max_tokens.unwrap_or(usual);
    let dir = &arguments.out;
    let written = accuracy::outputs(dir).into_iter().chain([accuracy::journal_file(dir)]);
    files::check_outputs([&tasks], written).map_err(|clash| miette!("--out: {clash}"))?;
    let answered =
        accuracy::answer(&mut model, &questions, &conditions, max_tokens, dir).map_err(|e| miette!("{e}"))?;
    let device = match arguments.device {
        LiveDevice::Cpu => "cpu",
        LiveDevice::Cuda => "cuda",
    };
    let name = |path: &Path| path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let about = BTreeMap::from([("model", name(&folder)), ("tasks", name(&tasks)), ("device", device.into())]);
    let report = Accuracy::of(about, &questions, &answered);
    report.write(dir).map_err(|error| miette!("{error}"))?;
    show::print(&format!("{}\nwritten to {}\n", report.text(), dir.display()))
}

/// So many of the questions, evenly spread.
fn spread(questions: &[Question], count: usize) -> Vec<Question> {
    let count = count.min(questions.len());
    (0..count).map(|index| questions[index * questions.len() / count].clone()).collect()
}
