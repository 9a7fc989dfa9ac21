//! What a request's tokens are, as far as other requests can have the same: the keys by which pages are found again.
//!
//! A scheduler sees no text. A request brings the ids of its prompt (live), or says of which texts its prompt is made (a
//! workload, simulated or live alike); both give every page a key. A key is SHA-256 over the key of the page before it and
//! the page's own tokens, so equal keys mean equal tokens from the first position on.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use serde::{Serialize, Serializer};
use sha2::{Digest, Sha256};

use crate::layout::Layout;
use crate::request::RequestId;

/// Tokens that are the same wherever they appear.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Text {
    /// A text of the workload, by number: a system prompt, a document, what a user said.
    Written(u64),
    /// A request's prompt, by position, where no piece says what it is: nobody else has it but by naming the request.
    Prompt(RequestId),
    /// A request's output, by index.
    Output(RequestId),
}

/// Consecutive tokens of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Of which.
    pub text: Text,
    /// The first token, counted from 0.
    pub first: u32,
    /// How many.
    pub count: u32,
}

/// What is known of a prompt's tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tokens {
    /// Their ids.
    Ids(Arc<[u32]>),
    /// The texts that it begins with, in order. What lies behind them is the request's own ([`Text::Prompt`]).
    Pieces(Arc<[Piece]>),
}

/// What a request may have in common with others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    /// Requests of different salts share nothing, whatever their tokens are: a tenant's, so that nobody can tell by the time
    /// of an answer what others asked.
    pub salt: Option<Arc<str>>,
    /// The prompt.
    pub tokens: Tokens,
}

impl Piece {
    /// The first `count` tokens of a text.
    pub fn start(text: Text, count: u32) -> Self {
        Self { text, first: 0, count }
    }
}

/// The piece that holds each token of a prompt of `prompt_tokens` tokens which begins with `pieces`, in order: those that
/// there are, cut off at its end, and the request's own for the rest.
pub fn whole_prompt(pieces: &[Piece], request: RequestId, prompt_tokens: u32) -> impl Iterator<Item = Piece> {
    let mut end = 0;
    let given = pieces.iter().map_while(move |piece| {
        let count = piece.count.min(prompt_tokens - end);
        end += count;
        (count > 0).then_some(Piece { count, ..*piece })
    });
    let told: u64 = pieces.iter().map(|piece| u64::from(piece.count)).sum();
    let first = told.min(prompt_tokens.into()) as u32;
    let own = Piece { text: Text::Prompt(request), first, count: prompt_tokens - first };
    given.chain((own.count > 0).then_some(own))
}

/// What a page is found by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageKey([u8; 32]);

impl Hash for PageKey {
    /// It is a hash already.
    fn hash<H: Hasher>(&self, state: &mut H) {
        let [a, b, c, d, e, f, g, h, ..] = self.0;
        state.write_u64(u64::from_le_bytes([a, b, c, d, e, f, g, h]));
    }
}

impl PageKey {
    /// What every chain of a run begins with: pages of another model, layout or noise of the initial state hold other numbers.
    pub fn root(model: &str, layout: Layout, noise_seed: Option<u64>) -> Self {
        let mut hash = Sha256::new_with_prefix("loopbatch page 1\0");
        hash.update(model);
        hash.update([0]);
        hash.update(layout.name());
        hash.update([0, u8::from(noise_seed.is_some())]);
        hash.update(noise_seed.unwrap_or(0).to_le_bytes());
        Self(hash.finalize().into())
    }

    /// The root of a tenant's chains.
    fn salted(self, salt: &str) -> Self {
        let mut hash = Sha256::new_with_prefix(self.0);
        hash.update(b"salt");
        hash.update(salt);
        Self(hash.finalize().into())
    }
}

impl fmt::Display for PageKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl Serialize for PageKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The keys of one sequence's pages, in order, as far as they were asked for.
#[derive(Clone, Debug)]
pub struct Chain {
    content: Content,
    request: RequestId,
    prompt_tokens: u32,
    /// Ids of the output, where the prompt is known by ids.
    output: Vec<u32>,
    keys: Vec<PageKey>,
    /// The piece that the next page begins in, and how many of its tokens lie before.
    piece: (usize, u32),
}

impl Chain {
    /// Of a request with this content.
    pub fn new(content: Content, request: RequestId, prompt_tokens: u32) -> Self {
        Self { content, request, prompt_tokens, output: Vec::new(), keys: Vec::new(), piece: (0, 0) }
    }

    /// Learns the id of an output token. Behind a gap nothing is known.
    pub fn told(&mut self, token: u32, id: u32) {
        if matches!(self.content.tokens, Tokens::Ids(_)) && token as usize == self.output.len() {
            self.output.push(id);
        }
    }

    /// The keys of the first `pages` pages of `block_tokens` tokens, or of fewer if their tokens are not known yet.
    pub fn keys(&mut self, root: PageKey, pages: usize, block_tokens: u32) -> &[PageKey] {
        if let Tokens::Pieces(pieces) = &mut self.content.tokens
            && self.keys.is_empty()
            && pages > 0
        {
            *pieces = whole_prompt(pieces, self.request, self.prompt_tokens).collect();
        }
        while self.keys.len() < pages {
            let first = self.keys.len() as u32 * block_tokens;
            let parent = match (self.keys.last(), &self.content.salt) {
                (Some(&key), _) => key,
                (None, Some(salt)) => root.salted(salt),
                (None, None) => root,
            };
            let mut hash = Sha256::new_with_prefix(parent.0);
            let known = match &self.content.tokens {
                Tokens::Ids(prompt) => hash_ids(&mut hash, prompt, &self.output, first, block_tokens),
                Tokens::Pieces(_) => {
                    self.hash_pieces(&mut hash, block_tokens);
                    true
                }
            };
            if !known {
                break;
            }
            self.keys.push(PageKey(hash.finalize().into()));
        }
        self.known_keys(pages)
    }

    /// The keys of at most `pages` pages, of those that were asked for before.
    pub fn known_keys(&self, pages: usize) -> &[PageKey] {
        &self.keys[..pages.min(self.keys.len())]
    }

    /// Hashes the next `count` tokens by the texts that they are of. However a text is cut into pieces, it hashes alike.
    fn hash_pieces(&mut self, hash: &mut Sha256, count: u32) {
        let mut left = count;
        let mut last: Option<Piece> = None;
        while left > 0 {
            let piece = self.next_piece(left);
            left -= piece.count;
            last = Some(match last {
                Some(last) if last.text == piece.text && last.first + last.count == piece.first => {
                    Piece { count: last.count + piece.count, ..last }
                }
                other => {
                    other.into_iter().for_each(|other| hash_piece(hash, other));
                    piece
                }
            });
        }
        last.into_iter().for_each(|last| hash_piece(hash, last));
    }

    /// Takes at most `most` tokens of what was not hashed yet. Behind the prompt comes the output.
    fn next_piece(&mut self, most: u32) -> Piece {
        loop {
            let (index, before) = self.piece;
            let given = match &self.content.tokens {
                Tokens::Pieces(pieces) => pieces.get(index).copied(),
                Tokens::Ids(_) => None,
            };
            let piece = given.unwrap_or(Piece::start(Text::Output(self.request), u32::MAX));
            if before == piece.count {
                self.piece = (index + 1, 0);
                continue;
            }
            let count = most.min(piece.count - before);
            self.piece = (index, before + count);
            return Piece { first: piece.first + before, count, ..piece };
        }
    }
}

/// Hashes ids, or says that some of them are not known.
fn hash_ids(hash: &mut Sha256, prompt: &[u32], output: &[u32], first: u32, count: u32) -> bool {
    let (first, end) = (first as usize, (first + count) as usize);
    if end > prompt.len() + output.len() {
        return false;
    }
    hash.update([0]);
    prompt.iter().chain(output).skip(first).take(end - first).for_each(|id| hash.update(id.to_le_bytes()));
    true
}

fn hash_piece(hash: &mut Sha256, Piece { text, first, count }: Piece) {
    let (kind, number) = match text {
        Text::Written(text) => (1, text),
        Text::Prompt(RequestId(request)) => (2, request.into()),
        Text::Output(RequestId(request)) => (3, request.into()),
    };
    hash.update([kind]);
    hash.update(number.to_le_bytes());
    hash.update(first.to_le_bytes());
    hash.update(count.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> PageKey {
        PageKey::root("m", Layout::Shared, None)
    }

    fn pieces(request: u32, prompt_tokens: u32, pieces: &[Piece]) -> Chain {
        let content = Content { salt: None, tokens: Tokens::Pieces(pieces.into()) };
        Chain::new(content, RequestId(request), prompt_tokens)
    }

    fn written(text: u64, first: u32, count: u32) -> Piece {
        Piece { text: Text::Written(text), first, count }
    }

    #[test]
    fn keys_are_equal_as_far_as_tokens_are() {
        let keys = |chain: &mut Chain| chain.keys(root(), 4, 4).to_vec();
        let one = keys(&mut pieces(1, 16, &[written(7, 0, 10)]));
        let two = keys(&mut pieces(2, 16, &[written(7, 0, 10)]));
        assert_eq!(one[..2], two[..2]);
        assert_ne!(one[2], two[2], "the third page holds tokens of the request's own");
        let cut = keys(&mut pieces(1, 16, &[written(7, 0, 3), written(7, 3, 6), written(7, 9, 1)]));
        assert_eq!(one, cut, "how a text is cut is not part of it");
        let moved = keys(&mut pieces(1, 16, &[written(7, 1, 10)]));
        assert!(one.iter().zip(&moved).all(|(one, moved)| one != moved));
    }

    #[test]
    fn the_next_turn_has_the_keys_of_the_prompt_and_output_before_it() {
        let first = pieces(1, 6, &[written(7, 0, 2)]).keys(root(), 3, 4).to_vec();
        let history = [
            written(7, 0, 2),
            Piece { text: Text::Prompt(RequestId(1)), first: 2, count: 4 },
            Piece::start(Text::Output(RequestId(1)), 6),
        ];
        assert_eq!(pieces(2, 20, &history).keys(root(), 3, 4), first);
    }

    #[test]
    fn ids_make_keys_once_they_are_known() {
        let ids = |salt: Option<&str>| {
            let content = Content { salt: salt.map(Arc::from), tokens: Tokens::Ids([1, 2, 3, 4, 5].into()) };
            Chain::new(content, RequestId(1), 5)
        };
        let mut chain = ids(None);
        assert_eq!(chain.keys(root(), 2, 4).len(), 1);
        chain.told(0, 6);
        chain.told(2, 8);
        assert_eq!(chain.keys(root(), 2, 4).len(), 1, "behind a gap nothing is known");
        (1..3).for_each(|token| chain.told(token, token + 6));
        let keys = chain.keys(root(), 2, 4).to_vec();
        let content = Content { salt: None, tokens: Tokens::Ids((1..=8).collect()) };
        assert_eq!(Chain::new(content, RequestId(9), 8).keys(root(), 2, 4), keys);
        assert_ne!(ids(Some("tenant")).keys(root(), 1, 4), &keys[..1]);
        assert_ne!(ids(None).keys(PageKey::root("m", Layout::LastExited, None), 1, 4), &keys[..1]);
    }

    #[test]
    fn pieces_beyond_the_prompt_are_cut_off() {
        let prompt: Vec<_> = whole_prompt(&[written(1, 0, 4), written(2, 0, 9)], RequestId(3), 6).collect();
        assert_eq!(prompt, [written(1, 0, 4), written(2, 0, 2)]);
        let own: Vec<_> = whole_prompt(&[written(1, 0, 4)], RequestId(3), 6).collect();
        assert_eq!(own[1], Piece { text: Text::Prompt(RequestId(3)), first: 4, count: 2 });
    }
}
