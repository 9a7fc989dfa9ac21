//! Where theory gives the answer, the simulator gives it too.

use engine::batch::{Batch, Emits, Input, Row, Slot, Span, Stage};
use engine::executor::{Executor, VirtualClock};
use engine::metrics::{Recorder, RunMetrics};
use engine::request::{Arrival, RequestId};
use engine::scheduler::{Mode, Overlap, SchedulerConfig};
use engine::units::{Depth, Nanos};
use sim::run::modelled::Modelled;
use tests::{Exits, World, arrival, config, roofline};
use traces::{AllowedExits, Workload};

fn measure(world: &World) -> RunMetrics {
    let mut recorder = Recorder::new(world.config.max_num_seqs, None);
    world.arrivals.iter().for_each(|arrival| recorder.arrived(arrival, arrival.request.arrival, None));
    world.run().steps.iter().for_each(|step| recorder.step(step));
    recorder.metrics()
}

fn poisson(rate_per_s: f64, requests: u32, output_tokens: u32) -> Vec<Arrival> {
    let yaml = format!(
        "lengths: {{ fixed: {{ prompt_tokens: 4, output_tokens: {output_tokens} }} }}\n\
         requests: {requests}\narrivals: {{ poisson: {{ rate_per_s: {rate_per_s} }} }}"
    );
    let config = sim::scenario::load::parse(&yaml).expect("valid YAML");
    let allowed = AllowedExits::of(&tests::tiny(), true);
    let workload = Workload::new(&config, &traces::ExitsConfig::FullDepth, allowed, 7).expect("a valid workload");
    workload.arrivals().collect()
}

/// One-token requests on one slot are an M/D/1 queue: mean wait = rho s / (2 (1 - rho)).
#[test]
fn one_slot_is_an_m_d_1_queue() {
    let service_s = 0.01;
    for rho in [0.3, 0.6, 0.8] {
        let mut profile = roofline();
        profile.prefill = engine::profile::PrefillCost { delta_ms: service_s * 1e3, ..Default::default() };
        let arrivals = poisson(rho / service_s, 60_000, 1);
        let one_slot = SchedulerConfig { overlap: Overlap::Synchronous, ..config(Mode::ContinuousBatching, 1) };
        let world = World { config: one_slot, exits: Exits(vec![vec![]; arrivals.len()]), arrivals, profile };
        let wait = measure(&world).ttft.mean - service_s;
        let theory = rho * service_s / (2.0 * (1.0 - rho));
        assert!((wait / theory - 1.0).abs() < 0.05, "rho {rho}: waited {wait}, theory {theory}");
    }
}

/// Little's law: mean requests in the system = arrival rate x mean time in the system. One side comes from the queues that
/// the scheduler reports, the other from the requests' latencies.
#[test]
fn littles_law_holds_in_every_mode() {
    let adaptive = Mode::AdaptiveRefill(roofline().stage_costs());
    for mode in [Mode::ContinuousBatching, Mode::NoRefill, Mode::Refill { min_coda_batch: 2 }, adaptive] {
        let mut profile = roofline();
        profile.core.delta_ms = 1.0;
        let arrivals = poisson(300.0, 4_000, 9);
        let exits = Exits(vec![vec![2, 4, 3, 3, 2, 4, 3, 2]; arrivals.len()]);
        // Queues are seen when a step is settled; synchronously that is when it ends.
        let config = SchedulerConfig { overlap: Overlap::Synchronous, ..config(mode, 16) };
        let world = World { config, arrivals, exits, profile };
        let metrics = measure(&world);
        let mut held_ns = 0.0;
        let (mut since, mut in_system) = (Nanos::ZERO, 0);
        let mut arriving = world.arrivals.iter().map(|a| a.request.arrival).peekable();
        for step in &world.run().steps {
            let end = step.outcome.finished;
            held_ns += f64::from(in_system) * (end - since).0 as f64;
            while let Some(arrival) = arriving.next_if(|&arrival| arrival <= end) {
                held_ns += (end - arrival).0 as f64;
            }
            let queues = step.settled.queues;
            (since, in_system) = (end, queues.resident + queues.prompt);
        }
        let start = world.arrivals[0].request.arrival;
        let mean_in_system = held_ns / (since - start).0 as f64;
        let theory = metrics.requests.finished as f64 / metrics.makespan_s * metrics.e2e.mean;
        assert!((mean_in_system / theory - 1.0).abs() < 1e-6, "{mode:?}: {mean_in_system}, by Little's law {theory}");
    }
}

/// A single request takes the sum of its stages' times.
#[test]
fn a_batch_of_one_takes_the_sum_of_its_stages() {
    let mut profile = roofline();
    profile.stage_overhead_us = 7.0;
    for (mode, depths) in [
        (Mode::ContinuousBatching, [4, 4, 4]),
        (Mode::NoRefill, [2, 3, 4]),
        (Mode::Refill { min_coda_batch: 1 }, [2, 3, 4]),
        (Mode::Refill { min_coda_batch: 8 }, [4, 2, 2]),
    ] {
        let world = World {
            config: config(mode, 8),
            arrivals: vec![arrival(0, Nanos::ZERO, 100, 4)],
            exits: Exits(vec![depths.to_vec()]),
            profile: profile.clone(),
        };
        let log = world.run();
        let stages = |stage| log.steps.iter().filter(|step| step.outcome.batch.stage == stage).count();
        let p = &profile;
        let mut want_ms = p.prefill.time_ms([(0, 100)]);
        for (token, depth) in (1..).zip(depths) {
            let context = 100 + token;
            let (overhead_ms, loops) = if mode == Mode::ContinuousBatching { (0.0, 4) } else { (0.007, depth) };
            want_ms += p.prelude.time_ms(1, context) + overhead_ms;
            want_ms += f64::from(loops) * (p.core.time_ms(1, context) + overhead_ms);
            want_ms += p.coda.time_ms(1, context) + overhead_ms;
        }
        let took = log.steps.last().unwrap().outcome.finished;
        assert!((took.as_millis() - want_ms).abs() < 1e-4, "{mode:?}: {} ms, want {want_ms} ms", took.as_millis());
        if mode != Mode::ContinuousBatching {
            assert_eq!(stages(Stage::Core) as u8, depths.iter().sum::<u8>());
            assert_eq!((stages(Stage::Prelude), stages(Stage::Coda)), (3, 3));
        }
    }
}

/// Where logits decide whether a row leaves, a core step takes a coda's time besides its own, and no other stage more.
#[test]
fn reading_rows_out_costs_a_coda_a_loop() {
    let config = config(Mode::NoRefill, 8);
    let duration = |stage, reads_out| {
        let exits = Exits(vec![vec![4]; 3]);
        let mut executor = Modelled::new(&roofline(), &tests::tiny(), &config, false, exits).reading_out(reads_out);
        let row = |id| Row {
            slot: Slot(id),
            request: RequestId(id),
            epoch: 0,
            token: 1,
            span: Span::one(40 + id),
            depth: Depth(2),
            input: Input::Carried,
            emits: if stage == Stage::Coda { Emits::Last } else { Emits::Nothing },
        };
        let batch = Batch { id: 0, stage, rows: (0..3).map(row).collect(), edits: Vec::new() };
        let clock = &mut VirtualClock::default();
        let Ok(()) = executor.launch(batch, clock);
        let Ok(outcome) = executor.wait(clock);
        outcome.finished.0 - outcome.started.0
    };
    let coda = duration(Stage::Coda, false);
    assert!(coda > 0);
    // To a nanosecond, to which durations are rounded.
    assert!(duration(Stage::Core, true).abs_diff(duration(Stage::Core, false) + coda) <= 1);
    for stage in [Stage::Prelude, Stage::Coda, Stage::Forward] {
        assert_eq!(duration(stage, true), duration(stage, false), "{}", stage.name());
    }
}
