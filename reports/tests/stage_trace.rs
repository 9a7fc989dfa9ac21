//! Stage traces against lines of the paper's Tables 2 and 3.

use engine::batch::{Batch, Emits, Input, Outcome, Row, Slot, Span, Stage};
use engine::event_loop::Step;
use engine::request::RequestId;
use engine::scheduler::{Mode, Queues, Reuse, Settled};
use engine::units::{Depth, Nanos};
use reports::{StageTrace, detail};

const REFILL: &str = "\
index,stage,batch,detail,recurrent_queue,coda_queue,decode_queue,prompt_queue
0,init,,,0,0,,256
1,prefill,21,8192 prompt tokens,0,0,,235
2,prelude,20,after prefill,20,0,,235
3,loop,64,r2:64; 1 exit,63,1,,192
4,loop,63,r3:63; 29 exits,34,30,,192
5,coda,30,,34,0,,192
6,prelude,30,after coda,64,0,,192
7,loop,64,r1:30 r4:34; 34 exits,30,34,,192
8,loop,64,r1:29 r2:1 r4:34; 35 exits,29,35,,192
9,loop,64,r1:7 r8:57; 22 exits,42,22,,192
";

const NO_REFILL: &str = "\
index,stage,batch,detail,recurrent_queue,coda_queue,decode_queue,prompt_queue
0,init,,,,,0,256
1,prefill,21,8192 prompt tokens,,,20,235
2,prelude,64,,,,0,192
3,loop,64,r1:64,,,0,192
4,loop,64,r2:64; 1 exit,,,0,192
5,coda,64,,,,64,192
6,prelude,64,,,,0,192
";

const CONTINUOUS_BATCHING: &str = "\
index,stage,batch,detail,recurrent_queue,coda_queue,decode_queue,prompt_queue
0,init,,,,,0,256
1,prefill,12,1 prompt token,,,64,192
2,forward,64,,,,64,192
";

#[test]
fn traces_read_as_in_the_paper() {
    check(REFILL, Mode::Refill { min_coda_batch: 16 });
    check(NO_REFILL, Mode::NoRefill);
    check(CONTINUOUS_BATCHING, Mode::ContinuousBatching);
}

#[test]
fn moved_kv_is_counted_in_tokens() {
    let row = row(1, 100);
    assert_eq!(detail(&step(Stage::Offload, vec![row], [0; 4], 0), None), "100 KV tokens");
}

/// Builds the steps that a trace tells of and expects the same trace of them.
fn check(trace: &str, mode: Mode) {
    let mut written = Vec::new();
    let mut writer = StageTrace::new(&mut written, mode, 256).expect("memory takes all");
    for line in trace.lines().skip(2) {
        writer.step(&parse(line)).expect("memory takes all");
    }
    assert_eq!(writer.steps(), trace.lines().count() as u64 - 2);
    assert_eq!(String::from_utf8_lossy(&written), trace);
}

fn parse(line: &str) -> Step {
    let fields: Vec<&str> = line.split(',').collect();
    let number = |text: &str| text.split(' ').next().and_then(|word| word.parse::<u32>().ok()).unwrap_or(0);
    let batch = number(fields[2]) as usize;
    let queues = [4, 5, 6, 7].map(|column: usize| number(fields[column]));
    let (stage, rows, exits) = match fields[1] {
        "prefill" => {
            let last = number(fields[3]) - (batch as u32 - 1).min(number(fields[3]) - 1);
            let tokens = |index| if index == 0 { last } else { u32::from(last > 1) };
            (Stage::Prefill, (0..batch).map(|index| row(4, tokens(index))).collect(), 0)
        }
        "loop" => {
            let (depths, exits) = fields[3].split_once("; ").unwrap_or((fields[3], "0 exits"));
            let rows = depths.split(' ').flat_map(|part| {
                let (depth, count) = part[1..].split_once(':').expect("a depth and a count");
                vec![row(number(depth) as u8, 1); number(count) as usize]
            });
            (Stage::Core, rows.collect(), number(exits))
        }
        "prelude" => (Stage::Prelude, vec![row(1, 1); batch], 0),
        "coda" => (Stage::Coda, vec![row(4, 1); batch], 0),
        _ => (Stage::Forward, vec![row(4, 1); batch], 0),
    };
    step(stage, rows, queues, exits)
}

fn row(depth: u8, tokens: u32) -> Row {
    Row {
        slot: Slot(0),
        request: RequestId(0),
        epoch: 0,
        token: 0,
        span: Span { first: 0, count: tokens },
        depth: Depth(depth),
        input: Input::Given,
        emits: Emits::Nothing,
    }
}

fn step(stage: Stage, rows: Vec<Row>, [recurrent, coda, decode, prompt]: [u32; 4], exits: u32) -> Step {
    let batch = Batch { id: 0, stage, rows, edits: Vec::new() };
    let queues = Queues { recurrent, coda, decode, prompt, ..Queues::default() };
    Step {
        outcome: Outcome {
            batch,
            started: Nanos::ZERO,
            finished: Nanos::ZERO,
            rows: Vec::new(),
            tokens: Vec::new(),
            scores: Vec::new(),
        },
        settled: Settled { id: 0, exits, reuse: Reuse::default(), queues },
    }
}
