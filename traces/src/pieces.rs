//! What the prompts of a workload have in common, as text and in memory.
//!
//! A prompt's pieces are separated by spaces: `7:512` is the first 512 tokens of text 7, `7@512:100` the hundred behind
//! them, `p3@20:12` tokens 20 to 31 of request 3's prompt (the workload's fourth), `o3:33` the first 33 tokens of its answer.

use engine::content::{Piece, Text};
use engine::request::RequestId;

use crate::lists::Lists;
use crate::numbers::MAX_TOKENS;

/// The pieces of a workload file by request, 24 bytes each.
pub type RecordedPieces = Lists<Piece>;

/// A prompt's pieces as text.
pub fn to_text(pieces: &[Piece]) -> String {
    let text = |&Piece { text, first, count }: &Piece| {
        let name = match text {
            Text::Written(text) => text.to_string(),
            Text::Prompt(RequestId(request)) => format!("p{request}"),
            Text::Output(RequestId(request)) => format!("o{request}"),
        };
        if first > 0 { format!("{name}@{first}:{count}") } else { format!("{name}:{count}") }
    };
    pieces.iter().map(text).collect::<Vec<_>>().join(" ")
}

/// A prompt's pieces from text.
///
/// # Errors
/// The first that is none.
pub fn from_text(text: &str) -> Result<Vec<Piece>, String> {
    let wrong = |piece: &str| {
        format!(
            "must list pieces such as `7:512` (512 tokens of text 7), `7@512:100`, `p3:20` or `o3:33` (of request 3's prompt or \
             output), got `{piece}`"
        )
    };
    text.split_ascii_whitespace().map(|piece| parse(piece).ok_or_else(|| wrong(piece))).collect()
}

fn parse(piece: &str) -> Option<Piece> {
    let (source, count) = piece.split_once(':')?;
    let (name, first) = source.split_once('@').unwrap_or((source, "0"));
    let text = if let Some(request) = name.strip_prefix('p') {
        Text::Prompt(RequestId(request.parse().ok()?))
    } else if let Some(request) = name.strip_prefix('o') {
        Text::Output(RequestId(request.parse().ok()?))
    } else {
        Text::Written(name.parse().ok()?)
    };
    let (first, count): (u32, u32) = (first.parse().ok()?, count.parse().ok()?);
    let in_range = count >= 1 && u64::from(first) + u64::from(count) <= MAX_TOKENS.into();
    in_range.then_some(Piece { text, first, count })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_read_back() {
        let text = "7:512 7@512:100 p3@20:12 o3:33";
        let pieces = from_text(text).unwrap();
        assert_eq!(pieces[1], Piece { text: Text::Written(7), first: 512, count: 100 });
        assert_eq!(pieces[3], Piece::start(Text::Output(RequestId(3)), 33));
        assert_eq!(to_text(&pieces), text);
    }

    #[test]
    fn what_is_no_piece_is_named() {
        for wrong in ["7", "7:0", "x:3", "7@:3", "o:3", "7:2000000000", "-1:3"] {
            let error = from_text(&format!("1:2 {wrong}")).unwrap_err();
            assert!(error.ends_with(&format!("got `{wrong}`")), "{error}");
        }
    }
}
