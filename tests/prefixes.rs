//! Laws of the prefix cache: what is found is what would have been computed, and nobody writes what others read.

use std::collections::BTreeMap;
use std::sync::Arc;

use engine::batch::{Batch, Page, Row, Slot, Stage, TableEdit};
use engine::content::{PageKey, Piece, Text, whole_prompt};
use engine::event_loop;
use engine::executor::VirtualClock;
use engine::inbox::Replay;
use engine::layout::Layout;
use engine::live::cpu::{CpuExecutor, CpuOptions, bf16};
use engine::live::weights::Weights;
use engine::live::{LiveConfig, LiveExits};
use engine::request::RequestId;
use engine::scheduler::{CachedPages, Finish, Mode, Overlap, PrefixCache, Pressure, Reuse, Scheduler, SchedulerConfig};
use engine::submission::Submission;
use engine::units::Nanos;
use proptest::prelude::*;
use tests::{Exits, Log, World, arrival, config, roofline};

use super::{OVERLAPS, batches, tokens, worlds};

/// What each request's prompt begins with.
type Contents = Vec<Vec<Piece>>;

fn cache(pages: CachedPages) -> Option<PrefixCache> {
    Some(PrefixCache { pages, root: PageKey::root("m", Layout::Shared, None) })
}

/// Requests that begin with one of three texts, or with a part of what another request asked and was answered.
fn shared() -> impl Strategy<Value = (World, Contents)> {
    let begins = (any::<proptest::sample::Index>(), 0..6_u64, 0..40_u32);
    let pages = prop_oneof![Just(CachedPages::Prompt), Just(CachedPages::PromptAndOutput)];
    (worlds(), proptest::collection::vec(begins, 30), pages).prop_map(|(mut world, begins, pages)| {
        world.config.kv.prefix_cache = cache(pages);
        let mut contents: Contents = Vec::new();
        for (id, (earlier, text, count)) in begins.into_iter().enumerate().take(world.arrivals.len()) {
            if text < 3 || id == 0 {
                contents.push(vec![Piece::start(Text::Written(text % 3), count.max(1))]);
                continue;
            }
            let of = earlier.index(id);
            let asked = world.arrivals[of].request;
            let mut history: Vec<_> = whole_prompt(&contents[of], asked.id, asked.prompt_tokens).collect();
            history.push(Piece::start(Text::Output(asked.id), asked.max_output_tokens));
            contents.push(history);
        }
        (world, contents)
    })
}

fn submissions(world: &World, contents: &Contents) -> Vec<Submission> {
    let ask = |(arrival, pieces): (_, &Vec<Piece>)| Submission {
        pieces: Some(pieces.as_slice().into()),
        ..Submission::from(arrival)
    };
    world.arrivals.iter().copied().zip(contents).map(ask).collect()
}

fn serve(world: &World, contents: &Contents) -> Log {
    world.run_submissions(submissions(world, contents))
}

/// Every page's tokens, told by all that stands before them and by themselves, as an executor would hold them.
struct Held<'a> {
    world: &'a World,
    contents: &'a Contents,
    tables: BTreeMap<Slot, (RequestId, Vec<Page>)>,
    pages: BTreeMap<(Page, u32), Vec<(Text, u32)>>,
}

impl<'a> Held<'a> {
    fn new(world: &'a World, contents: &'a Contents) -> Self {
        Self { world, contents, tables: BTreeMap::new(), pages: BTreeMap::new() }
    }

    /// The tokens of a request up to a position.
    fn history(&self, RequestId(request): RequestId, position: u32) -> Vec<(Text, u32)> {
        let asked = self.world.arrivals[request as usize].request;
        let prompt = whole_prompt(&self.contents[request as usize], asked.id, asked.prompt_tokens);
        let output = Piece::start(Text::Output(asked.id), asked.max_output_tokens);
        let tokens =
            prompt.chain([output]).flat_map(|piece| (0..piece.count).map(move |i| (piece.text, piece.first + i)));
        tokens.take(position as usize + 1).collect()
    }

    fn place(&self, slot: Slot, position: u32) -> (Page, u32) {
        let size = self.world.config.kv.block_tokens;
        (self.tables[&slot].1[(position / size) as usize], position % size)
    }

    fn run(&mut self, batch: &Batch) -> Result<(), TestCaseError> {
        for edit in &batch.edits {
            match *edit {
                TableEdit::Admit(slot, request) => drop(self.tables.insert(slot, (request.id, Vec::new()))),
                TableEdit::Append(slot, page) => self.tables.entry(slot).or_default().1.push(page),
                TableEdit::Adopt(slot, page) => {
                    let (request, pages) = self.tables.entry(slot).or_default();
                    pages.push(page);
                    let (request, index) = (*request, pages.len() as u32 - 1);
                    let size = self.world.config.kv.block_tokens;
                    for offset in 0..size {
                        let wanted = self.history(request, index * size + offset);
                        prop_assert_eq!(
                            self.pages.get(&(page, offset)),
                            Some(&wanted),
                            "an adopted page holds other tokens"
                        );
                    }
                }
                TableEdit::Truncate(..) => unreachable!("no policy truncates"),
            }
        }
        // Whom a batch does not name may have lost its slot, and its pages with it.
        for row in &batch.rows {
            if batch.stage == Stage::Offload {
                continue;
            }
            let read = if batch.stage == Stage::Restore { 0..0 } else { 0..row.span.first };
            for position in read {
                let place = self.place(row.slot, position);
                let wanted = self.history(row.request, position);
                prop_assert_eq!(self.pages.get(&place), Some(&wanted), "a page that is read holds other tokens");
            }
            for position in row.span.positions() {
                self.write(batch, row, position)?;
            }
        }
        Ok(())
    }

    fn write(&mut self, batch: &Batch, row: &Row, position: u32) -> Result<(), TestCaseError> {
        let place = self.place(row.slot, position);
        for other in batch.rows.iter().filter(|other| other.slot != row.slot) {
            prop_assert!(!self.tables[&other.slot].1.contains(&place.0), "a page is written while it is shared");
        }
        let wanted = self.history(row.request, position);
        self.pages.insert(place, wanted);
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_read_is_what_was_asked_and_no_page_is_written_while_it_is_shared((world, contents) in shared()) {
        let log = serve(&world, &contents);
        let mut held = Held::new(&world, &contents);
        for step in &log.steps {
            held.run(&step.outcome.batch)?;
        }
        // Everybody is answered, as without a cache.
        let cold = World { config: without(world.config), ..world.clone() }.run();
        let delivered = |log: &Log| {
            let mut tokens: Vec<_> = tokens(log).into_iter().map(|(request, token, _)| (request, token)).collect();
            tokens.sort_unstable();
            tokens
        };
        prop_assert_eq!(delivered(&log), delivered(&cold));
    }

    #[test]
    fn what_is_not_found_is_prefilled((world, contents) in shared(), eos in any::<bool>()) {
        let mut world = world;
        world.config.finish = if eos { Finish::Eos } else { Finish::Length };
        let log = serve(&world, &contents);
        let reuse = log.steps.iter().map(|step| step.settled.reuse);
        let (needed, found) = reuse.fold((0, 0), |(needed, found), reuse| (needed + reuse.prompt_tokens, found + reuse.hit_tokens));
        let adopted = log.steps.iter().flat_map(|step| &step.outcome.batch.edits);
        let adopted = adopted.filter(|edit| matches!(edit, TableEdit::Adopt(..))).count() as u32;
        let prefills = log.steps.iter().filter(|step| step.outcome.batch.stage == Stage::Prefill);
        let run: u32 = prefills.flat_map(|step| &step.outcome.batch.rows).map(|row| row.span.count).sum();
        prop_assert_eq!((run, adopted * world.config.kv.block_tokens), (needed - found, found));
    }

    #[test]
    fn overlap_modes_find_and_give_up_the_same_pages((world, contents) in shared()) {
        let mut world = world;
        world.arrivals.iter_mut().for_each(|arrival| arrival.request.arrival = Nanos::ZERO);
        let runs = OVERLAPS.map(|overlap| serve(&world.with_overlap(overlap), &contents));
        let settled = |log: &Log| log.steps.iter().map(|step| step.settled).collect::<Vec<_>>();
        for other in &runs[1..] {
            prop_assert_eq!(batches(&runs[0]), batches(other));
            prop_assert_eq!(settled(&runs[0]), settled(other));
        }
    }

    #[test]
    fn a_cancelled_request_takes_no_page_along(
        (world, contents) in shared(),
        after in proptest::collection::vec(proptest::option::of(0..60_000_u64), 30),
    ) {
        let mut world = world;
        for (arrival, after) in world.arrivals.iter_mut().zip(after) {
            arrival.cancel_after = after.map(Nanos);
        }
        let mut held = Held::new(&world, &contents);
        for step in &serve(&world, &contents).steps {
            held.run(&step.outcome.batch)?;
        }
    }
}

fn without(mut config: SchedulerConfig) -> SchedulerConfig {
    config.kv.prefix_cache = None;
    config
}

/// One request after the other, in a pool of so many pages; prompt tokens that each found.
fn found(pages: CachedPages, pool: u32, asked: &[(u32, u32, &[Piece])]) -> Vec<u32> {
    let mut config = config(Mode::Refill { min_coda_batch: 1 }, 4);
    config.kv.prefix_cache = cache(pages);
    config.kv.blocks = pool;
    let second = |id: usize| Nanos(id as u64 * 1_000_000_000);
    let arrivals =
        asked.iter().enumerate().map(|(id, &(prompt, output, _))| arrival(id as u32, second(id), prompt, output));
    let exits = Exits(asked.iter().map(|&(_, output, _)| vec![2; output as usize]).collect());
    let world = World { config, arrivals: arrivals.collect(), exits, profile: roofline() };
    let log = serve(&world, &asked.iter().map(|(_, _, pieces)| pieces.to_vec()).collect());
    let prefills = log.steps.iter().filter(|step| step.outcome.batch.stage == Stage::Prefill);
    prefills.map(|step| step.settled.reuse.hit_tokens).collect()
}

#[test]
fn all_of_a_repeated_prompt_is_found_but_its_last_token() {
    let prompt: &[Piece] = &[Piece::start(Text::Written(1), 512)];
    assert_eq!(
        found(CachedPages::Prompt, 1000, &[(512, 4, prompt), (512, 4, prompt), (513, 4, prompt)]),
        [0, 496, 512]
    );
}

#[test]
fn answers_are_found_where_they_are_published_and_in_prompts_that_repeat_them() {
    let system = Piece::start(Text::Written(1), 20);
    let first = Piece { text: Text::Prompt(RequestId(0)), first: 20, count: 12 };
    let answer = Piece::start(Text::Output(RequestId(0)), 33);
    let turn: &[Piece] = &[system, first, answer];
    let asked = [(32, 33, &[system][..]), (80, 2, turn), (80, 2, turn)];
    // The last token of the answer was never run, so its page was not complete.
    assert_eq!(found(CachedPages::PromptAndOutput, 1000, &asked), [0, 64, 64]);
    assert_eq!(found(CachedPages::Prompt, 1000, &asked), [0, 32, 64]);
}

#[test]
fn the_deepest_pages_of_the_oldest_chain_are_given_up() {
    let text = |text| [Piece::start(Text::Written(text), 64)];
    let (one, two) = (text(1), text(2));
    let third = [Piece::start(Text::Prompt(RequestId(2)), 80)];
    // Ten pages: two chains of four stay. The third request needs three more than the two that are free, and takes them from
    // the first chain's end. The fourth finds what is left of it, and the second chain makes room for the rest.
    let asked = [(65, 15, &one[..]), (65, 15, &two), (80, 1, &[]), (65, 15, &one), (81, 1, &third), (65, 15, &two)];
    assert_eq!(found(CachedPages::Prompt, 10, &asked), [0, 0, 0, 16, 80, 0]);
}

#[test]
fn an_offloaded_sequence_comes_back_with_pages_of_its_own() {
    let mut config = SchedulerConfig { overlap: Overlap::Synchronous, ..config(Mode::NoRefill, 3) };
    config.kv.prefix_cache = cache(CachedPages::Prompt);
    (config.kv.blocks, config.kv.block_tokens, config.kv.pressure) = (12, 4, Pressure::Offload);
    let text = Piece::start(Text::Written(1), 8);
    let arrivals = (0..4).map(|id| arrival(id, Nanos(u64::from(id) * 100), 9, 20)).collect();
    let world = World { config, arrivals, exits: Exits(vec![vec![2; 20]; 4]), profile: roofline() };
    let contents = vec![vec![text]; 4];
    let log = serve(&world, &contents);
    let restores = log.steps.iter().filter(|step| step.outcome.batch.stage == Stage::Restore);
    let mut edits = restores.flat_map(|step| &step.outcome.batch.edits).peekable();
    assert!(edits.peek().is_some(), "the pool was meant to be too small");
    assert!(edits.all(|edit| !matches!(edit, TableEdit::Adopt(..))));
    let adopts = log.steps.iter().flat_map(|step| &step.outcome.batch.edits);
    assert!(
        adopts.filter(|edit| matches!(edit, TableEdit::Adopt(..))).count() > 0,
        "the prompts were meant to be found"
    );
}

/// The same requests on the modelled device and on a real model: hits, evictions and batches are the same, row for row.
#[test]
fn a_live_run_finds_gives_up_and_batches_what_was_simulated() {
    for (model, layout) in [(tests::tiny(), Layout::LastExited), (tests::tiny(), Layout::Shared)] {
        for (pages, pool) in [(CachedPages::Prompt, 60), (CachedPages::PromptAndOutput, 400)] {
            let mut config = config(Mode::Refill { min_coda_batch: 2 }, 5);
            config.kv.prefix_cache = cache(pages);
            (config.r_max, config.max_num_batched_tokens) = (model.r_max, 48);
            (config.kv.layout, config.kv.block_tokens) = (layout, 4);
            config.kv.blocks = pool * u32::from(layout.planes(model.r_max));
            config.kv.pressure = Pressure::Offload;
            let arrivals: Vec<_> = (0..60).map(|id| arrival(id, Nanos::ZERO, 20 + id * 7 % 31, 2 + id % 9)).collect();
            let text = |id: u32| vec![Piece::start(Text::Written((id % 5).into()), 9 + id * 5 % 17)];
            let contents: Contents = (0..60).map(text).collect();
            let depths =
                |id: u32| (0..12).map(|token| 2 + ((id + token * 3) % u32::from(model.r_max.0 - 1)) as u8).collect();
            let world = World { config, arrivals, exits: Exits((0..60).map(depths).collect()), profile: roofline() };
            let simulated = serve(&world, &contents);

            let live = LiveConfig::new(config, LiveExits::Replay(Arc::new(world.exits.clone())));
            let options = CpuOptions { threads: 1, ..CpuOptions::default() };
            let mut executor =
                CpuExecutor::<bf16>::new(&model, &Weights::random(&model, 5), live, options).expect("it fits");
            let mut scheduler = Scheduler::new(config).expect("the settings are valid");
            let mut log = Log::default();
            let mut inbox = Replay::new(submissions(&world, &contents).into_iter());
            event_loop::run(&mut scheduler, &mut executor, &mut VirtualClock::default(), &mut inbox, &mut log)
                .expect("the model runs");
            let decided = |log: &Log| -> Vec<_> {
                log.steps.iter().map(|step| (step.outcome.batch.clone(), step.settled)).collect()
            };
            assert_eq!(decided(&simulated), decided(&log), "{layout}, {pool} pages");
            let sum = |of: fn(Reuse) -> u32| log.steps.iter().map(|step| of(step.settled.reuse)).sum::<u32>();
            assert!(sum(|reuse| reuse.hit_tokens) > 100, "{layout}: prompts were meant to be found");
            assert_eq!(sum(|reuse| reuse.evicted_pages) > 0, pool < 100, "{layout}");
        }
    }
}
