//! What ends a request: its own tokens in place of the run's, none of them before it has its minimum.

use engine::layout::Layout;
use engine::live::LiveConfig;
use engine::request::{Arrival, RequestId};
use engine::scheduler::{Finish, Mode};
use engine::submission::{Ends, Sampling, Submission};

use crate::serve::{EOS_MARGIN, MODELS, OVERLAPS, Run, early};
use crate::stream::{End, Streamed, stream_as};

fn ends(tokens: &[u32], min_tokens: u32) -> Option<Ends> {
    Some(Ends { tokens: tokens.into(), min_tokens })
}

/// Every output up to the longest that `finish: eos` allows.
fn unending(run: &Run) -> Streamed {
    stream_as(run, run.live(), |arrival| Submission { ends: ends(&[], 0), ..arrival.into() })
}

#[test]
fn a_requests_own_end_tokens_are_in_place_of_the_runs() {
    for name in MODELS {
        let run = Run { finish: Finish::Eos, ..Run::of(name, Layout::LastExited, early(name)) };
        let whole = unending(&run);
        for (request, answer) in &whole.clients.answers {
            let limit = run.workload[request.0 as usize].1 + EOS_MARGIN;
            assert_eq!((answer.output.len() as u32, answer.end), (limit, Some(End::Length)), "{name}: nothing ends it");
        }
        let said = |request, token: usize| whole.transcripts.get(RequestId(request)).output[token];
        let of_run = said(5, 4);
        // One request ends by its own tokens, one by none, the others by the run's.
        let own = |request: u32| match request {
            4 => Some(vec![said(4, 2), said(7, 1)]),
            5 => Some(Vec::new()),
            _ => None,
        };
        let ask = |arrival: Arrival| {
            let ends = own(arrival.request.id.0).and_then(|tokens| ends(&tokens, 0));
            Submission { ends, ..arrival.into() }
        };
        for overlap in OVERLAPS {
            let run = Run { overlap, eos: Some(of_run), ..run.clone() };
            let served = stream_as(&run, run.live(), ask);
            for (request, answer) in &served.clients.answers {
                let ends = own(request.0).unwrap_or_else(|| vec![of_run]);
                let output = &whole.transcripts.get(*request).output;
                let length = output.iter().position(|id| ends.contains(id)).map_or(output.len(), |at| at + 1);
                assert_eq!(answer.output, output[..length], "{name}, {overlap:?}: request {}", request.0);
            }
        }
    }
}

#[test]
fn end_tokens_cannot_be_chosen_before_the_minimum_and_nothing_else_changes() {
    const MIN_TOKENS: u32 = 4;
    for name in MODELS {
        let run = Run { finish: Finish::Eos, ..Run::of(name, Layout::LastExited, early(name)) };
        let config = || LiveConfig { keep_logits: true, ..run.live() };
        let sampling = |request: RequestId| match request.0 % 3 {
            0 => Sampling { temperature: 0.7, seed: request.0.into(), ..Sampling::GREEDY },
            1 => Sampling { temperature: 1.3, top_k: 12, top_p: 0.95, seed: 9 },
            _ => Sampling::GREEDY,
        };
        let of = |arrival: Arrival, ends| Submission {
            ends,
            sampling: Some(sampling(arrival.request.id)),
            ..arrival.into()
        };
        let whole = stream_as(&run, config(), |arrival| of(arrival, ends(&[], 0)));
        // What each request would say first.
        let first = |request| {
            let mut ids = whole.transcripts.get(request).output[..3].to_vec();
            ids.dedup();
            ids
        };
        let served = stream_as(&run, config(), |arrival| of(arrival, ends(&first(arrival.request.id), MIN_TOKENS)));
        for (request, transcript) in served.transcripts.iter() {
            let (ends, what) = (first(request), format!("{name}: request {}", request.0));
            for (token, (&id, logits)) in transcript.output.iter().zip(&transcript.logits).enumerate() {
                let early = token < MIN_TOKENS as usize;
                assert!(!early || !ends.contains(&id), "{what}: {id} at {token}");
                if sampling(request) == Sampling::GREEDY {
                    let allowed = (0..logits.len() as u32).filter(|id| !early || !ends.contains(id));
                    let best = allowed.max_by(|&a, &b| logits[a as usize].total_cmp(&logits[b as usize])).unwrap();
                    assert_eq!(id, best, "{what}: token {token}");
                }
                let last = token + 1 == transcript.output.len();
                assert!(last || early || !ends.contains(&id), "{what}: it goes on behind its end");
            }
            let limit = run.workload[request.0 as usize].1 + EOS_MARGIN;
            let length = transcript.output.len() as u32;
            assert!(length == limit || length > MIN_TOKENS, "{what}: {length} tokens");
        }
        let alone = Run { max_num_seqs: 1, mode: Mode::NoRefill, ..run.clone() };
        let alone_config = LiveConfig { keep_logits: true, ..alone.live() };
        let again =
            stream_as(&alone, alone_config, |arrival| of(arrival, ends(&first(arrival.request.id), MIN_TOKENS)));
        assert_eq!(served.transcripts, again.transcripts, "{name}: another schedule");
        // A minimum that no end token would have broken changes nothing.
        let never = |arrival: Arrival| {
            let output = &whole.transcripts.get(arrival.request.id).output;
            let unsaid = (0..512).find(|id| !output.contains(id)).unwrap();
            of(arrival, ends(&[unsaid], MIN_TOKENS))
        };
        assert_eq!(stream_as(&run, config(), never).transcripts, whole.transcripts, "{name}: an end nobody says");
    }
}
