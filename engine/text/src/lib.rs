//! Text to token ids and back, as the tokenizer of a model folder has it.
//!
//! A [`Tokenizer`] is opened once and shared. [`Chat`] turns messages into a prompt, a [`TextStream`] turns the ids of
//! one output into text while they come, and [`StopStrings`] cut that text.

mod byte_level;
mod chat;
mod config;
mod error;
mod every_byte;
mod marks;
mod stop;
mod stream;
mod template;
mod tokenizer;

pub use chat::{Chat, Message};
pub use error::TextError;
pub use every_byte::write_every_byte;
pub use stop::StopStrings;
pub use stream::TextStream;
pub use tokenizer::{NamedToken, Tokenizer};
