//! The saturation verdict on a queue whose capacity is known: one slot, deterministic service, Poisson arrivals.

use engine::metrics::{Recorder, RunMetrics};
use engine::profile::PrefillCost;
use engine::request::Arrival;
use engine::scheduler::{Mode, Overlap, SchedulerConfig};
use engine::units::Nanos;
use tests::{Exits, World, arrival, config, roofline};
use traces::{AllowedExits, Workload};

/// Serves one-token requests for `duration_s` at `load` times a capacity of `capacity_per_s`.
fn measure(load: f64, capacity_per_s: f64, duration_s: f64, seed: u64, starts_at: Nanos) -> RunMetrics {
    let yaml = format!(
        "lengths: {{ fixed: {{ prompt_tokens: 4, output_tokens: 1 }} }}\n\
         arrivals: {{ poisson: {{ rate_per_s: {}, duration_s: {duration_s} }} }}",
        load * capacity_per_s
    );
    let workload = sim::scenario::load::parse(&yaml).expect("valid YAML");
    let allowed = AllowedExits::of(&tests::tiny(), true);
    let workload = Workload::new(&workload, &traces::ExitsConfig::FullDepth, allowed, seed).expect("a valid workload");
    let later = |a: Arrival| arrival(a.request.id.0, a.request.arrival + starts_at, 4, 1);
    let arrivals: Vec<Arrival> = workload.arrivals().map(later).collect();
    let mut profile = roofline();
    profile.prefill = PrefillCost { delta_ms: 1e3 / capacity_per_s, ..Default::default() };
    let one_slot = SchedulerConfig { overlap: Overlap::Synchronous, ..config(Mode::ContinuousBatching, 1) };
    let world = World { config: one_slot, exits: Exits(vec![vec![]; arrivals.len()]), arrivals, profile };
    let mut recorder = Recorder::new(1, None);
    let mut arrivals = world.arrivals.iter().peekable();
    for step in &world.run().steps {
        while let Some(arrival) = arrivals.next_if(|arrival| arrival.request.arrival <= step.outcome.started) {
            recorder.arrived(arrival, arrival.request.arrival, None);
        }
        recorder.step(step);
    }
    recorder.metrics()
}

/// How many of 20 seeds are judged to be past saturation.
fn verdicts(load: f64, capacity_per_s: f64, duration_s: f64) -> usize {
    let saturated = |seed| measure(load, capacity_per_s, duration_s, seed, Nanos::ZERO).saturated();
    (0..20).filter(|&seed| saturated(seed) == Some(true)).count()
}

#[test]
fn a_long_window_tells_five_percent_on_both_sides() {
    assert_eq!((verdicts(0.95, 100.0, 600.0), verdicts(1.05, 100.0, 600.0)), (0, 20));
}

#[test]
fn ten_minutes_at_a_few_requests_per_second_tell_fifteen_percent() {
    let (below, above) = (verdicts(0.85, 4.0, 600.0), verdicts(1.15, 4.0, 600.0));
    assert!(below == 0 && above >= 18, "{below} and {above} of 20");
}

#[test]
fn a_short_window_condemns_nothing_that_keeps_up() {
    for (load, duration_s) in [(0.3, 30.0), (0.8, 30.0), (0.9, 60.0)] {
        assert_eq!(verdicts(load, 4.0, duration_s), 0, "load {load} over {duration_s} s");
    }
    // Twice the capacity shows even there.
    assert!(verdicts(2.0, 4.0, 60.0) >= 19);
}

#[test]
fn the_growth_is_what_capacity_leaves_over_whenever_the_run_begins() {
    for starts_at in [Nanos::ZERO, Nanos::from_secs(5_000.0)] {
        let growth = measure(1.2, 50.0, 600.0, 1, starts_at).queue_growth_per_s().expect("an online run");
        assert!((growth - 10.0).abs() < 1.0, "grows by {growth} per second, offered 60, capacity 50");
    }
}
