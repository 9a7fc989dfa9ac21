//! An OpenAI-compatible server for looped language models.
