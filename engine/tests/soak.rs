//! A server that runs for weeks: requests come over a channel, are answered and forgotten, and leave nothing behind.
//!
//! It has a process of its own, since it measures the process's memory.

#![expect(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use engine::architecture::Architecture;
use engine::event_loop::{self, Observer, Refused, Step};
use engine::executor::ExitSource;
use engine::inbox::Message;
use engine::layout::Layout;
use engine::live::channel;
use engine::live::cpu::{CpuExecutor, CpuOptions};
use engine::live::wall_clock::WallClock;
use engine::live::weights::Weights;
use engine::live::{LiveConfig, LiveExits};
use engine::request::{Arrival, Request, RequestId};
use engine::scheduler::{KvConfig, Scheduler, SchedulerConfig};
use engine::submission::{ExitRule, Sampling, Submission};
use engine::units::{Depth, Nanos};

const REQUESTS: u32 = 200_000;

/// Requests on their way at once: the client waits for some to be over before it sends more.
const OPEN: u32 = 256;

/// The smallest model with every part of an Ouro.
fn micro() -> Architecture {
    Architecture {
        name: "micro".into(),
        vocab: 64,
        hidden: 16,
        ffn: 16,
        heads: 1,
        head_dim: 16,
        core_layers: 1,
        r_max: Depth(3),
        ..Architecture::builtin("tiny-ouro").unwrap()
    }
}

/// Two or three loops, by request.
struct Exits;

impl ExitSource for Exits {
    fn exit_depth(&self, request: RequestId, _: u32) -> Depth {
        Depth(2 + (request.0 % 2) as u8)
    }
}

/// Counts what is over, refused and cancelled, and what each request got.
struct Count {
    over: Arc<AtomicU32>,
    tokens: u64,
    cancelled: u32,
    refused: u32,
    /// Memory in pages of the system, early and late.
    memory: Vec<u64>,
}

impl Observer for Count {
    fn arrived(&mut self, _: &Arrival, _: Nanos, refused: Option<&Refused>) {
        if refused.is_some() {
            self.refused += 1;
            self.over.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn cancelled(&mut self, _: RequestId, _: Nanos) {
        self.cancelled += 1;
        self.over.fetch_add(1, Ordering::Relaxed);
    }

    fn step(&mut self, step: &Step) -> ControlFlow<()> {
        let outcome = &step.outcome;
        for (row, told) in outcome.batch.rows.iter().zip(&outcome.rows) {
            self.tokens += u64::from(row.delivered(told));
            // Every request asks for two tokens.
            let last = row.delivered(told) > 0 && row.token == 1;
            self.over.fetch_add(u32::from(last), Ordering::Relaxed);
        }
        let over = self.over.load(Ordering::Relaxed);
        if over >= (self.memory.len() as u32 + 1) * (REQUESTS / 10) {
            self.memory.push(resident_pages());
        }
        ControlFlow::Continue(())
    }
}

/// Pages of memory in use, where the system tells.
fn resident_pages() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0)
}

/// Request number `id`; every 50th asks for a token that the model does not know.
fn submission(id: u32) -> Submission {
    let request = Request { id: RequestId(id), arrival: Nanos::ZERO, prompt_tokens: 2, max_output_tokens: 2 };
    let prompt: Arc<[u32]> = if id.is_multiple_of(50) { [1, 64].into() } else { [id % 64, 7].into() };
    Submission {
        prompt: Some(prompt),
        sampling: id.is_multiple_of(3).then_some(Sampling { temperature: 1.0, seed: id.into(), ..Sampling::GREEDY }),
        exit: id.is_multiple_of(5).then_some(ExitRule::FullDepth),
        ..Arrival { request, output_tokens: 2, cancel_after: None }.into()
    }
}

#[test]
fn requests_that_are_over_leave_nothing_behind() {
    let architecture = micro();
    let defaults = SchedulerConfig::of(&architecture);
    let scheduler = SchedulerConfig {
        max_num_batched_tokens: 256,
        max_context_tokens: 8,
        kv: KvConfig { layout: Layout::LastExited, blocks: 3 * 128, block_tokens: 4, ..defaults.kv },
        ..defaults
    };
    let exits = LiveExits::Replay(Arc::new(Exits));
    let config = LiveConfig { keep_transcripts: false, ..LiveConfig::new(scheduler, exits) };
    let weights = Weights::random(&architecture, 3);
    let options = CpuOptions { threads: 1, ..CpuOptions::default() };
    let mut executor: CpuExecutor = CpuExecutor::new(&architecture, &weights, config, options).unwrap();
    let mut clock = WallClock::start();
    let (sender, mut inbox) = channel(clock.waker());
    let over = Arc::new(AtomicU32::new(0));
    let seen = over.clone();
    let client = std::thread::spawn(move || {
        for id in 0..REQUESTS {
            while id - seen.load(Ordering::Relaxed) > OPEN {
                std::thread::yield_now();
            }
            sender.send(Message::Submit(submission(id))).unwrap();
            if id.is_multiple_of(7) {
                sender.send(Message::Cancel(RequestId(id))).unwrap();
            }
        }
    });
    let mut count = Count { over, tokens: 0, cancelled: 0, refused: 0, memory: Vec::new() };
    let mut scheduler = Scheduler::new(scheduler).unwrap();
    event_loop::run(&mut scheduler, &mut executor, &mut clock, &mut inbox, &mut count).unwrap();
    client.join().unwrap();

    assert_eq!(count.refused, REQUESTS / 50, "a bad prompt is refused alone");
    assert!(count.cancelled > 0 && count.tokens > 0);
    let served = u64::from(REQUESTS - count.refused - count.cancelled);
    assert!(count.tokens >= 2 * served, "{} tokens for {served} requests", count.tokens);
    assert_eq!(executor.transcripts().iter().count(), 0, "what is over is forgotten");
    assert_eq!(executor.known_requests(), 0, "what is over is forgotten");
    let (early, late) = (count.memory[1], count.memory[8]);
    assert!(late <= early + 512, "memory grew from {early} to {late} pages of 4 KiB");
}
