//! A sequence that is truncated while batches of its old positions are on their way: their outcomes are ignored.

use std::sync::Arc;

use engine::batch::{Batch, Emits, Input, Page, Row, RowOutcome, Slot, Span, Stage, TableEdit};
use engine::executor::{Executor, VirtualClock};
use engine::layout::Layout;
use engine::live::cpu::{CpuExecutor, CpuOptions, bf16};
use engine::live::weights::Weights;
use engine::live::{LiveConfig, LiveExits};
use engine::request::{Arrival, Request, RequestId};
use engine::units::{Depth, Nanos};

use crate::serve::{Run, Scattered, model};

const PROMPT: u32 = 5;

/// A row of the token behind the prompt's own.
fn row(epoch: u32, depth: u8, input: Input, emits: Emits) -> Row {
    let (slot, request) = (Slot(0), RequestId(0));
    Row { slot, request, epoch, token: 1, span: Span::one(PROMPT), depth: Depth(depth), input, emits }
}

/// The batches of one token that leaves after two loops.
fn token(epoch: u32) -> [(Stage, Row); 4] {
    [
        (Stage::Prelude, row(epoch, 1, Input::Sampled, Emits::Nothing)),
        (Stage::Core, row(epoch, 1, Input::Carried, Emits::Nothing)),
        (Stage::Core, row(epoch, 2, Input::Carried, Emits::Nothing)),
        (Stage::Coda, row(epoch, 2, Input::Carried, Emits::Last)),
    ]
}

#[test]
fn what_an_older_epoch_did_is_ignored() {
    let exits = LiveExits::Replay(Arc::new(Scattered { r_min: 2, r_max: 2 }));
    let run = Run::of("tiny-ouro", Layout::LastExited, exits.clone());
    // Two positions, so that the token chosen behind the first does not take the place of its own input.
    let config = LiveConfig { window: 2, keep_logits: true, ..run.live() };
    let options = CpuOptions { threads: 1, ..CpuOptions::default() };
    let weights = Weights::random(&model("tiny-ouro"), 5);
    let mut executor = CpuExecutor::<bf16>::new(&model("tiny-ouro"), &weights, config, options).unwrap();
    let request = Request { id: RequestId(0), arrival: Nanos::ZERO, prompt_tokens: PROMPT, max_output_tokens: 2 };
    executor.submit(&Arrival { request, output_tokens: 2, cancel_after: None }.into()).unwrap();

    let clock = &mut VirtualClock::default();
    let admit = vec![
        TableEdit::Admit(Slot(0), request),
        TableEdit::Append(Slot(0), Page(3)),
        TableEdit::Append(Slot(0), Page(1)),
    ];
    let span = Span { first: 0, count: PROMPT };
    let prompt = Row { token: 0, span, depth: Depth(4), ..row(0, 4, Input::Given, Emits::Last) };
    executor.launch(Batch { id: 0, stage: Stage::Prefill, rows: vec![prompt], edits: admit }, clock).unwrap();
    // What is kept must be known before a sequence is truncated.
    assert_eq!(executor.wait(clock).unwrap().tokens.len(), 1);
    // Everything else is queued before anything is waited for: the first try, its truncation, the second try.
    let tries = token(0).into_iter().chain(token(1));
    for (id, (stage, row)) in (1..).zip(tries) {
        let edits = if id == 5 { vec![TableEdit::Truncate(Slot(0), PROMPT)] } else { Vec::new() };
        executor.launch(Batch { id, stage, rows: vec![row], edits }, clock).unwrap();
    }
    let outcomes: Vec<_> = (1..9).map(|_| executor.wait(clock).unwrap()).collect();

    let told = |leaves: u8| RowOutcome { leaves_after: Some(Depth(leaves)), ..RowOutcome::default() };
    let rows: Vec<RowOutcome> = outcomes.iter().map(|outcome| outcome.rows[0]).collect();
    assert_eq!(rows[..4], [RowOutcome::default(); 4], "the first try");
    assert_eq!(rows[6], told(2), "the second try");
    // The same token from the same state: what was taken back was made again, bit for bit.
    assert_eq!(outcomes[3].tokens, outcomes[7].tokens);
    let transcript = executor.transcripts().get(RequestId(0));
    assert_eq!((transcript.output.len(), transcript.output[1]), (1 + 1, outcomes[7].tokens[0]));
}
