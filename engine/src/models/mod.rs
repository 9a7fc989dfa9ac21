//! What the looped models are, apart from how they are run: tensor names, weights, initial state and exit gates.
//!
//! Every executor builds on these, so that a CPU and a GPU disagree in rounding at most.

pub mod counter;
pub mod gate;
pub mod initial_state;
pub mod safetensors_file;
pub mod tensor;
pub mod tensor_names;
pub mod weights;
