//! `finish: eos`: the end is found late, costs a row, and changes nothing else.

use engine::layout::Layout;
use engine::request::RequestId;
use engine::scheduler::{Finish, Mode, Overlap};

use crate::serve::{EOS_MARGIN, MODELS, OVERLAPS, Run, Served, early};

const MODES: [Mode; 3] = [Mode::Refill { min_coda_batch: 1 }, Mode::NoRefill, Mode::ContinuousBatching];

/// Every output up to the longest that `finish: eos` allows.
fn unending(run: &Run) -> Served {
    let workload = run.workload.iter().map(|&(prompt, output)| (prompt, output + EOS_MARGIN)).collect();
    Run { workload, ..run.clone() }.serve()
}

/// Panics unless every output of `served` is `expected` gives of the unending one.
fn assert_cut(served: &Served, whole: &Served, expected: impl Fn(usize, &[u32]) -> usize, what: &str) {
    for (RequestId(request), transcript) in served.transcripts.iter() {
        let output = whole.output(request as usize);
        let length = expected(request as usize, output);
        assert_eq!(transcript.output, output[..length], "{what}: request {request}");
    }
}

#[test]
fn a_sequence_ends_with_its_eos_token_in_every_mode_and_overlap() {
    for model in MODELS {
        for mode in MODES {
            let run = Run { mode, ..Run::of(model, Layout::LastExited, early(model)) };
            let whole = unending(&run);
            // A token that some request says in the middle of its output.
            let eos = whole.output(4)[3];
            let cut = |_: usize, output: &[u32]| {
                output.iter().position(|&token| token == eos).map_or(output.len(), |at| at + 1)
            };
            for overlap in OVERLAPS {
                let run = Run { overlap, finish: Finish::Eos, eos: Some(eos), ..run.clone() };
                let served = run.serve();
                assert_cut(&served, &whole, cut, &format!("{model}, {mode:?}, {overlap:?}"));
            }
        }
    }
}

/// Rows that ran for a token behind the sequence's last, by request.
fn late_rows(served: &Served, request: usize) -> usize {
    let made = served.output(request).len() as u32;
    let rows = served.batches.iter().flat_map(|batch| &batch.rows);
    rows.filter(|row| row.request.0 as usize == request && row.token >= made).count()
}

#[test]
fn recorded_lengths_end_sequences_too_and_the_end_costs_one_late_token_at_most() {
    for model in MODELS {
        for mode in MODES {
            let run = Run { mode, ..Run::of(model, Layout::LastExited, early(model)) };
            let whole = unending(&run);
            for overlap in OVERLAPS {
                let served = Run { overlap, finish: Finish::Eos, ..run.clone() }.serve();
                let what = format!("{model}, {mode:?}, {overlap:?}");
                assert_cut(&served, &whole, |request, _| run.workload[request].1 as usize, &what);
                // One token behind the end: its decode step, or in stages its prelude and the loops queued behind that.
                let allowed = match (overlap, mode) {
                    (Overlap::Synchronous, _) => 0,
                    (_, Mode::ContinuousBatching) => 1,
                    (Overlap::Asynchronous, _) => 2,
                    (Overlap::Lookahead, _) => 3,
                };
                let late: Vec<usize> = (0..run.workload.len()).map(|request| late_rows(&served, request)).collect();
                assert!(late.iter().all(|&late| late <= allowed), "{what}: {late:?}");
                assert_eq!(allowed > 0, late.iter().any(|&late| late > 0), "{what}: {late:?}");
            }
        }
    }
}
