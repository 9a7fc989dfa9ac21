//! The simulator: scenarios, the modelled executor, comparisons against bounds, and the command line.

pub mod capacity;
pub mod compare;
pub mod explore;
pub mod facts;
pub mod load;
pub mod locate;
pub mod modelled;
pub mod numbers;
pub mod output;
pub mod parallel;
pub mod plan;
pub mod quick;
pub mod run;
pub mod scenario;
pub mod steps;
pub mod tune;
