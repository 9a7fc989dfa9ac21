//! Text to ids and back.

mod chat;
mod folders;
mod stop;
mod stream;
mod templates;
mod tokenizer;
