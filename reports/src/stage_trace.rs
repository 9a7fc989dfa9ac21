//! Stage traces as in the paper's Tables 2 and 3: one line per step, as CSV.

use std::io::{self, Write};

use engine::batch::Stage;
use engine::event_loop::Step;
use engine::scheduler::Mode;

use crate::composition::write_composition;

const HEADER: &str = "index,stage,batch,detail,recurrent_queue,coda_queue,decode_queue,prompt_queue";

/// Writes a trace, step by step.
#[derive(Debug)]
pub struct StageTrace<W> {
    out: W,
    mode: Mode,
    index: u64,
    source: Option<Stage>,
}

impl<W: Write> StageTrace<W> {
    /// Writes the header and the line before the first step, when `prompt_queue` requests wait.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn new(mut out: W, mode: Mode, prompt_queue: u32) -> io::Result<Self> {
        let queues = queues(mode, [0, 0, 0]);
        writeln!(out, "{HEADER}\n0,init,,,{queues},{prompt_queue}")?;
        Ok(Self { out, mode, index: 0, source: None })
    }

    /// Writes one step.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn step(&mut self, step: &Step) -> io::Result<()> {
        let batch = &step.outcome.batch;
        let refill = matches!(self.mode, Mode::Refill { .. } | Mode::AdaptiveRefill(_));
        let detail = detail(step, self.source.filter(|_| refill));
        if feeds_prelude(batch.stage) {
            self.source = Some(batch.stage);
        }
        self.index += 1;
        let settled = &step.settled.queues;
        let queues = queues(self.mode, [settled.recurrent, settled.coda, settled.decode]);
        let (stage, rows) = (paper_name(batch.stage), batch.rows.len());
        writeln!(self.out, "{},{stage},{rows},{detail},{queues},{}", self.index, settled.prompt)
    }

    /// Steps written so far.
    pub fn steps(&self) -> u64 {
        self.index
    }
}

/// What a step did beyond its batch size: `8192 prompt tokens`, `r1:29 r2:1 r4:34; 35 exits`, `after coda`.
///
/// `source` is the stage that a prelude's rows come from, if that is worth telling (in refill it is).
pub fn detail(step: &Step, source: Option<Stage>) -> String {
    let batch = &step.outcome.batch;
    let tokens = || batch.rows.iter().map(|row| u64::from(row.span.count)).sum::<u64>();
    match batch.stage {
        Stage::Prefill => count(tokens(), "prompt token"),
        Stage::Prelude => source.map_or_else(String::new, |stage| format!("after {}", stage.name())),
        Stage::Core => {
            let mut text = String::new();
            write_composition(batch, &mut text);
            if step.settled.exits > 0 {
                text.push_str("; ");
                text.push_str(&count(step.settled.exits.into(), "exit"));
            }
            text
        }
        Stage::Coda | Stage::Forward => String::new(),
        Stage::Offload | Stage::Restore => count(tokens(), "KV token"),
    }
}

/// Stages whose rows a prelude takes over.
fn feeds_prelude(stage: Stage) -> bool {
    matches!(stage, Stage::Prefill | Stage::Coda | Stage::Restore)
}

/// The paper calls a core step a loop.
fn paper_name(stage: Stage) -> &'static str {
    if stage == Stage::Core { "loop" } else { stage.name() }
}

/// The columns Q_R, Q_C and Q_D, empty where a mode has no such queue: refill keeps no decode queue between stages, the
/// other modes no rows outside a cohort.
fn queues(mode: Mode, [recurrent, coda, decode]: [u32; 3]) -> String {
    match mode {
        Mode::Refill { .. } | Mode::AdaptiveRefill(_) => format!("{recurrent},{coda},"),
        Mode::NoRefill | Mode::ContinuousBatching => format!(",,{decode}"),
    }
}

fn count(amount: u64, noun: &str) -> String {
    let plural = if amount == 1 { "" } else { "s" };
    format!("{amount} {noun}{plural}")
}
