//! The simulator: scenarios, the modelled executor, comparisons against bounds, and the command line.

pub mod load;
pub mod locate;
pub mod modelled;
pub mod numbers;
pub mod plan;
pub mod run;
pub mod scenario;
pub mod steps;
