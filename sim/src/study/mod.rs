//! What many runs say: capacities over rates, sweeps over fields, the best settings, architectures that do not exist yet.

pub mod capacity;
pub mod explore;
pub mod sweep;
pub mod tune;
