//! Where prompts come from.

use crate::models::counter::{Stream, below, draw};
use crate::request::{Request, RequestId};

/// The tokens that requests bring.
#[derive(Clone, Debug, PartialEq)]
pub enum Prompts {
    /// Random tokens, a function of seed, request and position, so that no order of arrival changes them.
    Random {
        /// Another seed, other prompts.
        seed: u64,
    },
    /// Given tokens, one list a request, in the order of request numbers.
    Given(Vec<Vec<u32>>),
}

/// A prompt that does not belong to its request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PromptError {
    /// Fewer prompts than requests.
    #[error("request {} has no prompt: only {prompts} are given", request.0)]
    Missing {
        /// The request.
        request: RequestId,
        /// How many prompts there are.
        prompts: usize,
    },
    /// The workload says another length.
    #[error("the prompt of request {} has {found} tokens, its workload says {expected}", request.0)]
    Length {
        /// The request.
        request: RequestId,
        /// Tokens by the workload.
        expected: u32,
        /// Tokens given.
        found: usize,
    },
    /// A token that the model does not know.
    #[error("the prompt of request {} holds token {token}, the vocabulary has {vocab}", request.0)]
    Vocabulary {
        /// The request.
        request: RequestId,
        /// The token.
        token: u32,
        /// Tokens there are.
        vocab: u32,
    },
}

impl Prompts {
    /// The prompt of a request.
    ///
    /// # Errors
    /// A given prompt is missing, has another length than the workload says, or holds an unknown token.
    pub fn prompt(&self, request: &Request, vocab: u32) -> Result<Vec<u32>, PromptError> {
        let id = request.id;
        match self {
            Self::Random { seed } => Ok((0..request.prompt_tokens)
                .map(|position| below(draw(*seed, Stream::Prompts, u64::from(id.0), u64::from(position)), vocab))
                .collect()),
            Self::Given(prompts) => {
                let prompt =
                    prompts.get(id.0 as usize).ok_or(PromptError::Missing { request: id, prompts: prompts.len() })?;
                if prompt.len() != request.prompt_tokens as usize {
                    let (expected, found) = (request.prompt_tokens, prompt.len());
                    return Err(PromptError::Length { request: id, expected, found });
                }
                match prompt.iter().find(|&&token| token >= vocab) {
                    Some(&token) => Err(PromptError::Vocabulary { request: id, token, vocab }),
                    None => Ok(prompt.clone()),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Nanos;

    fn request(id: u32, prompt_tokens: u32) -> Request {
        Request { id: RequestId(id), arrival: Nanos::ZERO, prompt_tokens, max_output_tokens: 1 }
    }

    #[test]
    fn a_longer_random_prompt_begins_with_the_shorter() {
        let prompts = Prompts::Random { seed: 3 };
        let long = prompts.prompt(&request(5, 40), 100).unwrap();
        assert_eq!(prompts.prompt(&request(5, 10), 100).unwrap(), long[..10]);
        assert_ne!(prompts.prompt(&request(6, 40), 100).unwrap(), long);
        assert!(long.iter().all(|&token| token < 100));
    }

    #[test]
    fn a_given_prompt_must_fit_its_request() {
        let prompts = Prompts::Given(vec![vec![1, 2, 99]]);
        let error = |request, vocab| prompts.prompt(&request, vocab).unwrap_err().to_string();
        assert_eq!(prompts.prompt(&request(0, 3), 100), Ok(vec![1, 2, 99]));
        assert_eq!(error(request(1, 3), 100), "request 1 has no prompt: only 1 are given");
        assert_eq!(error(request(0, 2), 100), "the prompt of request 0 has 3 tokens, its workload says 2");
        assert_eq!(error(request(0, 3), 99), "the prompt of request 0 holds token 99, the vocabulary has 99");
    }
}
