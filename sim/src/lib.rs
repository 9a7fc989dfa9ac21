//! The simulator: scenarios, the modelled executor, comparisons against bounds, and the command line.

pub mod capacity;
pub mod compare;
pub mod explore;
pub mod facts;
pub mod fields;
mod horizon;
pub mod inputs;
pub mod json_lines;
pub mod live;
pub mod load;
pub mod locate;
pub mod modelled;
pub mod numbers;
pub mod output;
pub mod parallel;
pub mod plan;
pub mod quick;
pub mod repeats;
pub mod run;
pub mod scenario;
pub mod shipped;
pub mod steps;
pub mod sweep;
pub mod tune;
pub mod validate;
