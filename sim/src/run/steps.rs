//! `--steps N`: the first steps of one scheduler, as the paper's stage traces show them.

use std::io::{self, Write};

use engine::event_loop::Step;
use engine::units::Nanos;
use reports::StageTrace;

use crate::run::plan::Plan;
use crate::run::serve::{Sink, serve};

/// Writes the init row and the first `steps` steps of the plan's first scheduler as CSV.
///
/// # Errors
/// Those of `out`.
pub fn write(plan: &Plan, steps: u64, out: &mut impl Write) -> io::Result<()> {
    let planned = &plan.schedulers[0];
    let at_start = plan.workload.arrivals().take_while(|arrival| arrival.request.arrival == Nanos::ZERO).count();
    let trace = StageTrace::new(out, planned.config.mode, at_start as u32)?;
    match serve(plan, planned, &mut FirstSteps { trace, steps }) {
        Ok(_) | Err(Stop::Enough) => Ok(()),
        Err(Stop::Io(error)) => Err(error),
    }
}

struct FirstSteps<W> {
    trace: StageTrace<W>,
    steps: u64,
}

enum Stop {
    Enough,
    Io(io::Error),
}

impl<W: Write> Sink for FirstSteps<W> {
    type Error = Stop;

    fn step(&mut self, step: &Step) -> Result<(), Stop> {
        if self.trace.steps() == self.steps {
            return Err(Stop::Enough);
        }
        self.trace.step(step).map_err(Stop::Io)
    }
}
