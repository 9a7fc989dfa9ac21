//! What a scenario asks of a server.

use client::{Exits, Load};
use engine::units::Nanos;
use traces::{ArrivalsConfig, ExitsConfig};

use super::Server;
use crate::run::plan::Plan;

/// What the server's loop is told, if it has one: a replayed or drawn depth cannot be told.
pub(super) fn exits(exits: &ExitsConfig) -> Exits {
    match exits {
        ExitsConfig::FullDepth => Exits::FullDepth,
        ExitsConfig::Gate(gate) if gate.threshold.is_some() || gate.min_depth.is_some() => {
            Exits::Threshold(gate.threshold, gate.min_depth.map(|depth| depth.0))
        }
        _ => Exits::Servers,
    }
}

/// Whose exits the two sides took, for reports.
pub(super) fn label(exits: &ExitsConfig, server: &Server) -> &'static str {
    match exits {
        ExitsConfig::Gate(_) => "as the server told them",
        _ if server.dialect.exits == Exits::FullDepth => "full depth, as the server was asked",
        ExitsConfig::FullDepth => "full depth, predicted; the server's own, measured",
        _ => "the scenario's, predicted; the server's own, measured",
    }
}

/// When requests are sent.
pub(super) fn load(plan: &Plan) -> Load {
    match plan.scenario.workload.arrivals {
        ArrivalsConfig::Closed { concurrency, think_s } => {
            Load::Closed { concurrency: concurrency.get(), think: Nanos::from_secs(think_s.get()) }
        }
        _ => Load::Open,
    }
}
