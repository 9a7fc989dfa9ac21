//! Exits that a live run took: saved as a workload file, and read back for the model to replay.

use std::path::Path;

use engine::live::RecordedExits;
use engine::units::Depth;
use traces::file::write::{Contents, FileWriter, RecordedRequest};
use traces::{AllowedExits, ArrivalsConfig, Exits, ExitsConfig, TracesError, Workload, WorkloadConfig};

use crate::plan::{Plan, Planned};

/// Writes `recorded_<scheduler>.csv` and returns its exits.
///
/// # Errors
/// The file cannot be written or read back.
pub(super) fn recorded(
    plan: &Plan,
    planned: &Planned,
    exits: &RecordedExits,
    dir: &Path,
) -> Result<Exits, TracesError> {
    let stem: String = planned.name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    let path = dir.join(format!("recorded_{stem}.csv"));
    let mut file = FileWriter::create(&path, Contents::ALL)?;
    for arrival in plan.workload.arrivals() {
        let full = vec![planned.config.r_max; arrival.output_tokens as usize];
        // A refused request made no token; its row keeps the numbering.
        let depths: &[Depth] = exits.depths.get(&arrival.request.id).unwrap_or(&full);
        file.push(&RecordedRequest {
            prompt_tokens: arrival.request.prompt_tokens,
            output_tokens: arrival.output_tokens,
            arrival: arrival.request.arrival,
            exit_depths: depths.get(1..).unwrap_or_default(),
        })?;
    }
    file.finish()?;
    let config = WorkloadConfig {
        lengths: None,
        file: Some(path),
        requests: None,
        arrivals: ArrivalsConfig::Offline,
        max_total_tokens: plan.scenario.workload.max_total_tokens,
    };
    let allowed = AllowedExits { family: plan.model.family, min: planned.config.r_min, max: planned.config.r_max };
    Ok(Workload::new(&config, &ExitsConfig::Replay, allowed, 0)?.exits().clone())
}
