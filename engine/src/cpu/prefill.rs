//! Prefill: chunks of many prompts in one pass, at full depth.
//!
//! Every token of a chunk runs a loop before any runs the next, so in `shared` a chunk sees its own tokens at the
//! current loop and earlier chunks at their last: chunking is part of the result there, and packing never is.

use super::element::Element;
use super::executor::{CpuError, CpuExecutor};
use super::lanes::Token;
use super::matrix::Matrix;
use crate::batch::{Row, RowOutcome};

impl<E: Element> CpuExecutor<E> {
    /// Runs the chunks; a row that ends its prompt yields an output token.
    pub(super) fn prefill(&mut self, rows: &[Row]) -> Result<Vec<RowOutcome>, CpuError> {
        let tokens: Vec<Token> = rows
            .iter()
            .flat_map(|row| (row.position..row.context()).map(|position| Token { slot: row.slot, position }))
            .collect();
        let start = self.start(&tokens, rows);
        let x = self.full_depth(start, &tokens);
        let mut end = 0;
        let mut last = Vec::new();
        for row in rows {
            end += row.tokens as usize;
            if row.ends_prompt {
                last.push(end - 1);
            }
        }
        // Only the last token of a prompt makes a token, so only its logits are computed.
        let x = Matrix::from_rows(x.width(), last.into_iter().map(|token| x.row(token)));
        let speaking: Vec<Row> = rows.iter().filter(|row| row.ends_prompt).copied().collect();
        let mut spoken = self.speak(&x, &speaking, |row| row.depth)?.into_iter();
        if spoken.len() == 0 {
            return Ok(Vec::new());
        }
        let told = |row: &Row| if row.ends_prompt { spoken.next().unwrap_or_default() } else { RowOutcome::default() };
        Ok(rows.iter().map(told).collect())
    }
}
