//! Keeps a user's text apart from the special tokens that a chat template writes.
//!
//! A template mixes both into one string. So before it runs, every special token inside the messages is broken by a
//! character that occurs nowhere else, and once the template's own special tokens are found that character goes away.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

/// Unicode's private use areas. They have no meaning of their own, are no white space and have no upper or lower case.
const PRIVATE_USE: [RangeInclusive<char>; 3] =
    ['\u{e000}'..='\u{f8ff}', '\u{f0000}'..='\u{ffffd}', '\u{100000}'..='\u{10fffd}'];

/// A character that breaks special tokens.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark(char);

impl Mark {
    /// The first private-use character that none of the texts holds.
    pub(super) fn unused<'a>(texts: impl Iterator<Item = &'a str>) -> Option<Self> {
        let is_private = |character: &char| PRIVATE_USE.iter().any(|range| range.contains(character));
        let used: BTreeSet<char> = texts.flat_map(str::chars).filter(is_private).collect();
        PRIVATE_USE.into_iter().flatten().find(|character| !used.contains(character)).map(Self)
    }

    /// Puts the mark behind the first character of every special token. At the text's end the beginning of one is
    /// enough, since what the template writes behind it could complete the token.
    pub(super) fn break_tokens(self, text: &str, special_tokens: &[String]) -> String {
        let firsts: BTreeSet<char> = special_tokens.iter().filter_map(|token| token.chars().next()).collect();
        let mut marked = String::with_capacity(text.len());
        for (at, character) in text.char_indices() {
            let rest = &text[at..];
            marked.push(character);
            if firsts.contains(&character)
                && special_tokens.iter().any(|token| rest.starts_with(token) || token.starts_with(rest))
            {
                marked.push(self.0);
            }
        }
        marked
    }

    /// Whether the text holds a mark.
    pub(super) fn is_in(self, text: &str) -> bool {
        text.contains(self.0)
    }

    /// Whether the text begins with a mark: what lies before it is a user's text, even if it is a whole token.
    pub(super) fn begins(self, text: &str) -> bool {
        text.starts_with(self.0)
    }

    /// The text as it was before.
    pub(super) fn remove(self, text: &str) -> String {
        text.replace(self.0, "")
    }
}
