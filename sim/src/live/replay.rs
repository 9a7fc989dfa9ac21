//! Exits that a live run took: saved as a workload file, and given to the model to replay.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use engine::live::TakenExits;
use engine::units::Depth;
use traces::exits::replay;
use traces::file::write::{Contents, FileWriter, RecordedRequest};
use traces::{AllowedExits, Exits, ExitsConfig, TracesError};

use crate::run::plan::{Plan, Planned};

/// The files in which a live run's gate leaves its exits; none if it has no gate.
pub fn recordings(plan: &Plan, dir: &Path) -> Vec<PathBuf> {
    let gate = matches!(plan.scenario.exits, ExitsConfig::Gate(_));
    plan.schedulers.iter().filter(|_| gate).map(|planned| recording(planned, dir)).collect()
}

/// `recorded_<scheduler>.csv`.
fn recording(planned: &Planned, dir: &Path) -> PathBuf {
    let stem: String = planned.name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    dir.join(format!("recorded_{stem}.csv"))
}

/// The exits, and the file that holds them once it is finished.
///
/// # Errors
/// The file cannot be written, or an exit is none that the scheduler can work with.
pub(crate) fn recorded(
    plan: &Plan,
    planned: &Planned,
    exits: &TakenExits,
    dir: &Path,
) -> Result<(FileWriter, Exits), TracesError> {
    let allowed = AllowedExits { family: plan.model.family, min: planned.config.r_min, max: planned.config.r_max };
    let contents = Contents { pieces: plan.workload.has_pieces(), ..Contents::ALL };
    let mut file = FileWriter::create(&recording(planned, dir), contents)?;
    let mut replayed = replay::RecordedExits::default();
    for arrival in plan.workload.arrivals() {
        let full = vec![planned.config.r_max; arrival.output_tokens as usize];
        // A refused request made no token; its row keeps the numbering.
        let depths: &[Depth] = exits.depths.get(&arrival.request.id).unwrap_or(&full);
        let exit_depths = depths.get(1..).unwrap_or_default();
        file.push(&RecordedRequest {
            prompt_tokens: arrival.request.prompt_tokens,
            output_tokens: arrival.output_tokens,
            arrival: arrival.request.arrival,
            cancel_after: arrival.cancel_after,
            pieces: &plan.workload.pieces(arrival.request.id),
            exit_depths,
        })?;
        exit_depths.iter().try_for_each(|depth| allowed.check(*depth))?;
        replayed.push_list(exit_depths.iter().copied());
    }
    Ok((file, Exits::Replay(Arc::new(replayed))))
}
