//! Text to ids and back.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails where it stands")]

mod chat;
mod folders;
mod stop;
mod stream;
mod templates;
mod tokenizer;
