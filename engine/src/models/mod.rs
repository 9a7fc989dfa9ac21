//! What the looped models are, apart from how they are run: families, their configs, initial state, exit criteria and gates.
//!
//! Every executor builds on these, so that a CPU and a GPU disagree in rounding at most.

pub mod config;
pub mod counter;
pub mod criterion;
pub mod family;
pub mod gate;
pub mod initial_state;
pub mod rope;
pub mod tensor_spec;
