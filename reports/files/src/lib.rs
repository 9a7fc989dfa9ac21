//! What every command promises of files: one that is read is not written over, and one that is written is there whole or
//! not at all.

mod outputs;
mod pending;

pub use outputs::{Clash, check_outputs};
pub use pending::{PendingFile, write_whole};
