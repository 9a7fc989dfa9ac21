//! Serving looped language models: text in, text out.

pub mod text;
