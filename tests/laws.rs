//! Laws that hold for every workload and every setting.

mod prefixes;

use std::collections::{BTreeMap, BTreeSet};

use engine::batch::{Batch, Page, Row, Slot, Stage, TableEdit};
use engine::bounds::least_time_s;
use engine::layout::Layout;
use engine::metrics::{Recorder, RequestCounts, RunMetrics};
use engine::profile::{Buckets, DeviceSpec, Profile};
use engine::request::{Arrival, Request, RequestId};
use engine::scheduler::{Finish, KvConfig, Mode, Overlap, Prefill, Pressure, SchedulerConfig, StageCosts};
use engine::units::{Depth, Nanos};
use proptest::prelude::*;
use tests::{Exits, Log, World, arrival, roofline};

const OVERLAPS: [Overlap; 3] = [Overlap::Synchronous, Overlap::Asynchronous, Overlap::Lookahead];

fn modes(w: u32) -> impl Strategy<Value = Mode> {
    prop_oneof![
        Just(Mode::ContinuousBatching),
        Just(Mode::NoRefill),
        (1..=w).prop_map(|min_coda_batch| Mode::Refill { min_coda_batch }),
        (0..40_u32).prop_map(|overhead| {
            let costs = roofline().stage_costs();
            Mode::AdaptiveRefill(StageCosts { stage_overhead_us: overhead.into(), ..costs })
        }),
    ]
}

fn settings() -> impl Strategy<Value = SchedulerConfig> {
    let scheduling = (1..9_u32).prop_flat_map(|w| (Just(w), modes(w), 1..=w, 1..40_u32));
    let overlap = proptest::sample::select(OVERLAPS.to_vec());
    let layout = proptest::sample::select(vec![Layout::LastExited, Layout::Shared, Layout::FirstThenShared]);
    let pressure = proptest::sample::select(vec![Pressure::Reserve, Pressure::Recompute, Pressure::Offload]);
    let kv = (layout, pressure, 8..80_u32, 1..6_u32, 0..6_u64, any::<bool>());
    let prefill = prop_oneof![
        2 => Just(Prefill::First),
        1 => (1..4_u32).prop_map(Prefill::Share),
        1 => (1..20_u32).prop_map(Prefill::Interleave),
    ];
    (scheduling, overlap, 2..7_u8, kv, prefill).prop_map(|((w, mode, s, m), overlap, r_max, kv, prefill)| {
        let (layout, pressure, blocks, block_tokens, headroom_blocks, boundary_layers) = kv;
        SchedulerConfig {
            mode,
            overlap,
            finish: Finish::Length,
            max_num_seqs: w,
            max_num_batched_tokens: m,
            min_free_slots: s,
            prefill,
            max_context_tokens: 60,
            r_max: Depth(r_max),
            r_min: Depth(2),
            kv: KvConfig {
                layout,
                blocks,
                block_tokens,
                headroom_blocks,
                pressure,
                boundary_layers,
                prefix_cache: None,
            },
        }
    })
}

/// Up to 30 requests, some too long for the context or the pool; microseconds between arrivals.
fn worlds() -> impl Strategy<Value = World> {
    let request = (1..40_u32, 1..30_u32, prop_oneof![2 => Just(0_u64), 1 => 0..40_000_u64]);
    let requests = proptest::collection::vec((request, proptest::collection::vec(0..5_u8, 30)), 1..30);
    (settings(), requests).prop_map(|(config, requests)| {
        let mut now = Nanos::ZERO;
        let (mut arrivals, mut exits) = (Vec::new(), Vec::new());
        for (id, ((prompt, output, gap_ns), depths)) in requests.into_iter().enumerate() {
            now += Nanos(gap_ns);
            arrivals.push(arrival(id as u32, now, prompt, output));
            exits.push(depths.into_iter().map(|depth| (depth + 2).min(config.r_max.0)).collect());
        }
        World { config, arrivals, exits: Exits(exits), profile: roofline() }
    })
}

fn offline(world: &World) -> World {
    let arrivals =
        world.arrivals.iter().map(|a| arrival(a.request.id.0, Nanos::ZERO, a.request.prompt_tokens, a.output_tokens));
    World { arrivals: arrivals.collect(), ..world.clone() }
}

fn batches(log: &Log) -> Vec<&Batch> {
    log.steps.iter().map(|step| &step.outcome.batch).collect()
}

/// Output tokens delivered, in order: (request, token index, when).
fn tokens(log: &Log) -> Vec<(RequestId, u32, Nanos)> {
    let mut tokens = Vec::new();
    for step in &log.steps {
        let outcome = &step.outcome;
        for (row, told) in outcome.batch.rows.iter().zip(&outcome.rows) {
            let indices = row.token..row.token + row.delivered(told);
            tokens.extend(indices.map(|index| (row.request, index, outcome.finished)));
        }
    }
    tokens
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn requests_are_conserved_and_every_token_is_delivered_once(world in worlds()) {
        let log = world.run();
        let refused: BTreeSet<_> = log.refused.iter().map(|(id, _)| *id).collect();
        let mut delivered: BTreeMap<RequestId, Vec<u32>> = BTreeMap::new();
        for (request, token, _) in tokens(&log) {
            delivered.entry(request).or_default().push(token);
        }
        for a in &world.arrivals {
            let got = delivered.remove(&a.request.id).unwrap_or_default();
            let want: Vec<u32> = if refused.contains(&a.request.id) { vec![] } else { (0..a.output_tokens).collect() };
            prop_assert_eq!(got, want);
        }
        prop_assert!(delivered.is_empty());
        let too_long = |a: &engine::request::Arrival| a.request.max_tokens() > 60;
        prop_assert!(world.arrivals.iter().filter(|a| too_long(a)).all(|a| refused.contains(&a.request.id)));
    }

    #[test]
    fn causes_come_before_effects(world in worlds()) {
        let log = world.run();
        let mut recorder = Recorder::new(world.config.max_num_seqs, None);
        for a in &world.arrivals {
            let refusal = log.refused.iter().find(|(id, _)| *id == a.request.id).map(|(_, refusal)| refusal);
            recorder.arrived(a, a.request.arrival, refusal);
        }
        let mut device_free = Nanos::ZERO;
        for step in &log.steps {
            prop_assert!(step.outcome.started >= device_free && step.outcome.finished >= step.outcome.started);
            device_free = step.outcome.finished;
            recorder.step(step);
        }
        for record in recorder.take_finished() {
            prop_assert!(record.arrival <= record.admitted);
            prop_assert!(record.admitted < record.first_token && record.first_token <= record.finish);
        }
        let metrics = recorder.metrics();
        prop_assert_eq!(metrics.requests.arrived, metrics.requests.finished + metrics.requests.refused);
        prop_assert_eq!(metrics.output_tokens as usize, tokens(&log).len());
    }

    #[test]
    fn a_refused_request_is_counted_and_moves_no_other_metric(world in worlds()) {
        let log = world.run();
        let measured = |heard: bool| {
            let mut recorder = Recorder::new(world.config.max_num_seqs, None);
            for a in &world.arrivals {
                let refusal = log.refused.iter().find(|(id, _)| *id == a.request.id).map(|(_, refusal)| refusal);
                if heard || refusal.is_none() {
                    recorder.arrived(a, a.request.arrival, refusal);
                }
            }
            log.steps.iter().for_each(|step| recorder.step(step));
            recorder.metrics()
        };
        let (with, without) = (measured(true), measured(false));
        let refused = log.refused.len() as u64;
        let requests = RequestCounts { arrived: without.requests.arrived + refused, refused, ..without.requests };
        prop_assert_eq!(RunMetrics { requests, ..without }, with);
    }

    #[test]
    fn the_device_never_idles_with_runnable_work(world in worlds()) {
        let log = world.run();
        for (before, after) in log.steps.iter().zip(log.steps.iter().skip(1)) {
            if after.outcome.started > before.outcome.finished {
                // The roofline has no host time, so a gap is a wait for an arrival, with nothing resident.
                prop_assert_eq!(before.settled.queues.resident, 0);
                prop_assert_eq!(before.settled.queues.prompt, 0);
            }
        }
    }

    #[test]
    fn limits_are_kept(world in worlds()) {
        let config = world.config;
        let log = world.run();
        for step in &log.steps {
            let batch = &step.outcome.batch;
            prop_assert!(!batch.rows.is_empty() && batch.rows.len() <= config.max_num_seqs as usize);
            prop_assert!(step.settled.queues.resident <= config.max_num_seqs);
            prop_assert!(batch.rows.iter().all(|row| row.depth.0 >= 1 && row.depth <= config.r_max));
            let slots: BTreeSet<_> = batch.rows.iter().map(|row| row.slot).collect();
            prop_assert_eq!(slots.len(), batch.rows.len(), "a sequence is in a batch twice");
            if batch.stage == Stage::Prefill {
                let tokens: u32 = batch.rows.iter().map(|row| row.span.count).sum();
                prop_assert!(tokens <= config.max_num_batched_tokens);
            }
        }
    }

    /// Between two decode steps prompts have no more than their share, where there is something to decode. (Under pressure all
    /// that there is can be preempted.)
    #[test]
    fn prompts_have_their_share_and_no_more(world in worlds()) {
        let mut world = world;
        world.config.kv.pressure = Pressure::Reserve;
        let log = world.run();
        let mut prefills = 0;
        for (before, after) in log.steps.iter().zip(log.steps.iter().skip(1)) {
            let (stage, queues) = (after.outcome.batch.stage, before.settled.queues);
            let decodes = match world.config.mode {
                Mode::ContinuousBatching | Mode::NoRefill => queues.decode > 0,
                Mode::Refill { .. } | Mode::AdaptiveRefill(_) => queues.recurrent + queues.coda > 0,
            };
            match before.outcome.batch.stage {
                Stage::Prefill => prefills += 1,
                Stage::Core | Stage::Forward => prefills = 0,
                Stage::Prelude if world.config.mode == Mode::NoRefill => prefills = 0,
                _ => {}
            }
            if stage == Stage::Prefill && decodes {
                let tokens: u32 = after.outcome.batch.rows.iter().map(|row| row.span.count).sum();
                match world.config.prefill {
                    Prefill::First => {}
                    Prefill::Share(batches) => prop_assert!(prefills < batches),
                    Prefill::Interleave(most) => prop_assert!(prefills < 1 && tokens <= most),
                }
            }
        }
    }

    #[test]
    fn overlap_modes_make_identical_batches_offline(world in worlds()) {
        let world = offline(&world);
        let runs = OVERLAPS.map(|overlap| world.with_overlap(overlap).run());
        prop_assert_eq!(batches(&runs[0]), batches(&runs[1]));
        prop_assert_eq!(batches(&runs[0]), batches(&runs[2]));
        let settled = |log: &Log| log.steps.iter().map(|step| step.settled).collect::<Vec<_>>();
        prop_assert_eq!(settled(&runs[0]), settled(&runs[1]));
        prop_assert_eq!(settled(&runs[0]), settled(&runs[2]));
    }

    #[test]
    fn a_clock_changes_times_but_not_decisions(world in worlds(), slower in 2..50_u32) {
        let world = offline(&world);
        let mut slow = world.clone();
        slow.profile.core.gamma_us *= f64::from(slower);
        slow.profile.prefill.delta_ms = 3.0;
        slow.profile.host.read_us = f64::from(slower);
        let (fast, slow) = (world.run(), slow.run());
        prop_assert_eq!(batches(&fast), batches(&slow));
    }

    #[test]
    fn the_same_world_gives_the_same_log(world in worlds()) {
        prop_assert_eq!(world.run(), world.run());
    }

    /// The oracle boundary: two worlds whose exits differ in one token are scheduled alike until that token's rows differ.
    #[test]
    fn the_scheduler_never_sees_a_true_exit_depth(world in worlds(), at in any::<proptest::sample::Index>(), token in 1..30_u32) {
        let world = offline(&world);
        prop_assume!(world.config.mode != Mode::ContinuousBatching);
        let request = world.arrivals[at.index(world.arrivals.len())].request.id;
        let mut other = world.clone();
        let depth = &mut other.exits.0[request.0 as usize][token as usize - 1];
        let shallower = (*depth).min(2);
        *depth = if *depth == 2 { world.config.r_max.0 } else { 2 };
        let (one, two) = (world.run(), other.run());
        for (left, right) in batches(&one).into_iter().zip(batches(&two)) {
            prop_assert_eq!(left, right);
            let decides = left.rows.iter().any(|row| row.request == request && row.token == token && row.depth.0 == shallower);
            if left.stage == Stage::Core && decides {
                break;
            }
        }
    }

    #[test]
    fn replaying_a_run_makes_the_same_decisions(world in worlds()) {
        let log = world.run();
        let mut recorded: Vec<Vec<u8>> = world.exits.0.iter().map(|depths| vec![world.config.r_max.0; depths.len()]).collect();
        for step in log.steps.iter().filter(|step| step.outcome.batch.stage == Stage::Coda) {
            for row in &step.outcome.batch.rows {
                recorded[row.request.0 as usize][row.token as usize - 1] = row.depth.0;
            }
        }
        let replay = World { exits: Exits(recorded), ..world.clone() };
        prop_assert_eq!(log, replay.run());
    }

    #[test]
    fn a_plane_that_is_read_was_written(world in worlds()) {
        let log = world.run();
        let mut kv = WrittenKv::new(world.config);
        for step in &log.steps {
            kv.run(&step.outcome.batch)?;
        }
    }

    /// S_roof bounds every speed-up: whatever is scheduled, on a device that is no faster than its roofline.
    #[test]
    fn no_run_takes_less_than_its_least_time(world in worlds(), profile in slower(), cuts in proptest::collection::vec(0..30_u32, 30), eos in any::<bool>()) {
        let mut world = World { profile, ..world };
        if eos {
            world.config.finish = Finish::Eos;
            for (a, cut) in world.arrivals.iter_mut().zip(cuts) {
                a.output_tokens = a.output_tokens.saturating_sub(cut).max(1);
            }
        }
        let log = world.run();
        let mut recorder = Recorder::new(world.config.max_num_seqs, None);
        for a in &world.arrivals {
            let refusal = log.refused.iter().find(|(id, _)| *id == a.request.id).map(|(_, refusal)| refusal);
            recorder.arrived(a, a.request.arrival, refusal);
        }
        log.steps.iter().for_each(|step| recorder.step(step));
        let work = recorder.metrics().work.expect("a recorder sums it");
        let limits = (world.config.max_num_seqs, world.config.max_num_batched_tokens);
        let least_s = least_time_s(&work, &tests::tiny(), &world.profile.device, limits);
        let busy_s: f64 = log.steps.iter().map(|step| (step.outcome.finished - step.outcome.started).as_secs()).sum();
        prop_assert!(least_s <= busy_s * (1.0 + 1e-6), "{least_s} s at least, {busy_s} s in the run");
        prop_assert_eq!(work.prompts as usize + log.refused.len(), world.arrivals.len());
    }

    /// Who is cancelled gets a beginning of its tokens and no slot for longer than the step that runs; nobody else loses
    /// anything, and every page comes back (the loop checks it whenever it is idle).
    #[test]
    fn a_cancelled_request_is_over_within_a_step_and_changes_no_other(
        world in worlds(),
        after in proptest::collection::vec(proptest::option::of(0..60_000_u64), 30),
        eos in any::<bool>(),
    ) {
        let mut world = world;
        world.config.finish = if eos { Finish::Eos } else { Finish::Length };
        for (a, after) in world.arrivals.iter_mut().zip(after) {
            a.cancel_after = after.map(Nanos);
        }
        let (log, records, metrics) = world.record();
        let refused: BTreeSet<_> = log.refused.iter().map(|(id, _)| *id).collect();
        let cancelled: BTreeMap<_, _> = log.cancelled.iter().copied().collect();
        let finished: BTreeSet<_> = records.iter().map(|record| record.request).collect();
        for a in &world.arrivals {
            let id = a.request.id;
            let fates = [refused.contains(&id), cancelled.contains_key(&id), finished.contains(&id)];
            prop_assert_eq!(fates.iter().filter(|&&fate| fate).count(), 1, "request {} meets {:?}", id.0, fates);
        }
        for record in &records {
            let a = world.arrivals.iter().find(|a| a.request.id == record.request).expect("it arrived");
            prop_assert_eq!(record.output_tokens, a.output_tokens);
        }
        for (id, time) in &cancelled {
            let a = world.arrivals.iter().find(|a| a.request.id == *id).expect("it arrived");
            prop_assert!(*time >= a.request.arrival + a.cancel_after.expect("nobody else is cancelled"));
            let got: Vec<u32> = tokens(&log).into_iter().filter(|token| token.0 == *id).map(|token| token.1).collect();
            prop_assert_eq!(got, (0..tokens(&log).iter().filter(|token| token.0 == *id).count() as u32).collect::<Vec<_>>());
        }
        let counts = metrics.requests;
        prop_assert_eq!(counts.arrived, counts.finished + counts.refused + counts.cancelled);
        if world.config.overlap == Overlap::Synchronous {
            for step in &log.steps {
                let late = |row: &Row| cancelled.get(&row.request).is_some_and(|time| step.outcome.started > *time);
                prop_assert!(!step.outcome.batch.rows.iter().any(late), "a cancelled request runs on");
            }
        }
    }

    #[test]
    fn an_end_of_sequence_found_late_cancels_one_row_and_nothing_else(world in worlds(), cuts in proptest::collection::vec(0..30_u32, 30)) {
        let mut world = world;
        world.config.finish = Finish::Eos;
        for (a, cut) in world.arrivals.iter_mut().zip(cuts) {
            a.output_tokens = a.output_tokens.saturating_sub(cut).max(1);
        }
        let log = world.run();
        let mut recorder = Recorder::new(world.config.max_num_seqs, None);
        for a in &world.arrivals {
            let refusal = log.refused.iter().find(|(id, _)| *id == a.request.id).map(|(_, refusal)| refusal);
            recorder.arrived(a, a.request.arrival, refusal);
        }
        for step in &log.steps {
            recorder.step(step);
        }
        let want: BTreeMap<_, _> = world.arrivals.iter().map(|a| (a.request.id, a.output_tokens)).collect();
        let got: Vec<_> = recorder.take_finished().collect();
        prop_assert_eq!(got.len() + log.refused.len(), world.arrivals.len());
        for record in got {
            prop_assert_eq!(record.output_tokens, want[&record.request]);
        }
        if world.config.overlap == Overlap::Synchronous {
            let late = tokens(&log).into_iter().any(|(request, token, _)| token >= want[&request]);
            prop_assert!(!late, "nothing runs late when every outcome is read first");
        }
        // At most one token is made past the end, and thrown away.
        prop_assert!(tokens(&log).into_iter().all(|(request, token, _)| token <= want[&request]));
    }
}

/// A device that is as fast as its datasheet or slower in each part; slow enough that nanoseconds are exact.
fn slower() -> impl Strategy<Value = Profile> {
    let device = (prop_oneof![Just(0.001), Just(1.0)], prop_oneof![Just(0.001), Just(1.0)]);
    let costs = (1.0..1.5_f64, 0.0..30.0_f64, 0.0..30.0_f64, any::<bool>());
    (device, costs).prop_map(|((gb_per_s, tflops), (factor, overhead_us, host_us, padded))| {
        let device = DeviceSpec { name: "slow".into(), bandwidth_gb_per_s: gb_per_s, compute_tflops: 0.01 * tflops };
        let mut profile = Profile::roofline(&device, &tests::tiny());
        profile.core.delta_ms = overhead_us / 1e3;
        profile.core.alpha_ns *= factor;
        profile.coda.gamma_us *= factor;
        profile.prefill.gamma_us *= factor;
        profile.stage_overhead_us = overhead_us;
        profile.host.read_us = host_us;
        profile.buckets = if padded { Buckets::PowersOfTwo } else { Buckets::Exact };
        profile
    })
}

/// A page, a plane of the core or the boundary layers', and the token within the page.
type Entry = (Page, Option<u8>, u32);

/// Which KV entries hold what, as an executor would keep them.
struct WrittenKv {
    config: SchedulerConfig,
    tables: BTreeMap<Slot, Vec<Page>>,
    /// What was last written to a page's plane, at an offset; the boundary layers' is `None`.
    entries: BTreeMap<Entry, (RequestId, u32)>,
    /// Exit depth of every token whose KV is complete.
    exits: BTreeMap<(RequestId, u32), Depth>,
}

impl WrittenKv {
    fn new(config: SchedulerConfig) -> Self {
        Self { config, tables: BTreeMap::new(), entries: BTreeMap::new(), exits: BTreeMap::new() }
    }

    fn run(&mut self, batch: &Batch) -> Result<(), TestCaseError> {
        for edit in &batch.edits {
            match *edit {
                TableEdit::Admit(slot, _) => self.tables.insert(slot, Vec::new()).map_or((), drop),
                TableEdit::Append(slot, page) | TableEdit::Adopt(slot, page) => {
                    self.tables.entry(slot).or_default().push(page);
                }
                TableEdit::Truncate(slot, tokens) => {
                    let pages = tokens.div_ceil(self.config.kv.block_tokens) as usize;
                    self.tables.entry(slot).or_default().truncate(pages);
                }
            }
        }
        let layout = self.config.kv.layout;
        for row in &batch.rows {
            match batch.stage {
                Stage::Prefill | Stage::Forward => {
                    for position in row.span.positions() {
                        for depth in (1..=self.config.r_max.0).map(Depth) {
                            self.write(row, Some(layout.plane_written(depth)), position);
                        }
                        self.write(row, None, position);
                        self.exits.insert((row.request, position), self.config.r_max);
                    }
                    for depth in (1..=self.config.r_max.0).map(Depth) {
                        self.reads(row, depth)?;
                    }
                }
                Stage::Prelude => self.write(row, None, row.span.first),
                Stage::Core => {
                    self.write(row, Some(layout.plane_written(row.depth)), row.span.first);
                    self.reads(row, row.depth)?;
                }
                Stage::Coda => {
                    self.exits.insert((row.request, row.span.first), row.depth);
                }
                Stage::Offload => {}
                Stage::Restore => {
                    for position in 0..row.span.count {
                        let exit = self.exits[&(row.request, position)];
                        for depth in (1..=exit.0).map(Depth) {
                            self.write(row, Some(layout.plane_written(depth)), position);
                        }
                        self.write(row, None, position);
                    }
                }
            }
        }
        Ok(())
    }

    fn write(&mut self, row: &Row, plane: Option<u8>, position: u32) {
        if plane.is_none() && !self.config.kv.boundary_layers {
            return;
        }
        let entry = self.entry(row, plane, position);
        self.entries.insert(entry, (row.request, position));
    }

    /// Every earlier token's entry that a loop at `depth` reads holds that token.
    fn reads(&self, row: &Row, depth: Depth) -> Result<(), TestCaseError> {
        for position in 0..row.span.first {
            let plane = self.config.kv.layout.plane_read(depth, self.exits[&(row.request, position)]);
            let entry = self.entry(row, Some(plane), position);
            prop_assert_eq!(
                self.entries.get(&entry),
                Some(&(row.request, position)),
                "plane {} at depth {}",
                plane,
                depth
            );
        }
        Ok(())
    }

    fn entry(&self, row: &Row, plane: Option<u8>, position: u32) -> Entry {
        let size = self.config.kv.block_tokens;
        (self.tables[&row.slot][(position / size) as usize], plane, position % size)
    }
}

/// A server numbers requests before they reach the engine, which may see them in another order.
#[test]
fn ends_are_those_of_the_requests_in_whatever_order_they_come() {
    let config = SchedulerConfig { finish: Finish::Eos, ..tests::config(Mode::Refill { min_coda_batch: 1 }, 4) };
    let output_tokens = [3, 7, 5];
    let limited = |id: u32| {
        let true_length = arrival(id, Nanos::ZERO, 4, output_tokens[id as usize]);
        let request = Request { max_output_tokens: 12, ..true_length.request };
        Arrival { request, ..true_length }
    };
    let world = World {
        config,
        arrivals: [2, 0, 1].map(limited).to_vec(),
        exits: Exits(output_tokens.map(|tokens| vec![2; tokens as usize + 12]).to_vec()),
        profile: roofline(),
    };
    let (_, mut records, _) = world.record();
    records.sort_unstable_by_key(|record| record.request);
    assert_eq!(records.iter().map(|record| record.output_tokens).collect::<Vec<_>>(), output_tokens);
}
