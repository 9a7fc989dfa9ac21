//! Laws of every exit criterion, whatever its signals are.

use engine::architecture::Architecture;
use engine::models::criterion::Criterion;
use engine::models::gate::{Gate, GateMemory, GateSpec};
use engine::units::Depth;
use proptest::prelude::*;

/// A criterion, its signals loop by loop, and two thresholds for it, the stricter first.
#[derive(Clone, Debug)]
struct Case {
    model: &'static str,
    criterion: Criterion,
    signals: Vec<f32>,
    thresholds: [f32; 2],
    min_depth: Option<Depth>,
    lookahead: bool,
}

impl Case {
    fn r_max(&self) -> Depth {
        Depth(self.signals.len() as u8)
    }

    fn gate(&self, threshold: f32) -> Gate {
        let spec = GateSpec {
            criterion: Some(self.criterion),
            threshold: Some(threshold),
            min_depth: self.min_depth,
            lookahead: self.lookahead,
        };
        let architecture = Architecture::builtin(self.model).expect("built in");
        Gate::new(spec, &architecture, self.r_max(), false).expect("the model can have it")
    }

    /// The loop in which the exit is decided, and the exit.
    fn exit(&self, threshold: f32) -> (Depth, Depth) {
        let gate = self.gate(threshold);
        let mut memory = GateMemory::default();
        let mut decided = None;
        for (depth, &signal) in (1..).zip(&self.signals) {
            gate.observe(&mut memory, Depth(depth), signal);
            if let Some((_, leaves)) = decided {
                assert_eq!(memory.leaves_after, Some(leaves), "what is decided stays so");
            }
            decided = decided.or(memory.leaves_after.map(|leaves| (Depth(depth), leaves)));
        }
        decided.expect("every token leaves")
    }
}

fn signals(criterion: Criterion) -> BoxedStrategy<f32> {
    match criterion {
        Criterion::Hazard => (0.0..0.6_f32).boxed(),
        Criterion::LatentDifference | Criterion::Kl => {
            prop_oneof![8 => 0.0..1.0_f32, 1 => Just(0.0), 1 => Just(-1e-9), 1 => Just(f32::NAN)].boxed()
        }
        Criterion::EntropyDifference => prop_oneof![8 => 0.0..3.0_f32, 1 => Just(f32::NAN)].boxed(),
        Criterion::ArgmaxStability => (0..2_u8).prop_map(f32::from).boxed(),
    }
}

/// Two thresholds, the stricter first.
fn thresholds(criterion: Criterion) -> BoxedStrategy<[f32; 2]> {
    let (strict, loose) = ((0.0..1.0_f32), (0.0..1.0_f32));
    match criterion {
        Criterion::Hazard => (strict, loose).prop_map(|(a, b)| [a.max(b), a.min(b)]).boxed(),
        Criterion::ArgmaxStability => {
            (1..6_u8, 1..6_u8).prop_map(|(a, b)| [f32::from(a.max(b)), f32::from(a.min(b))]).boxed()
        }
        _ => (strict, loose).prop_map(|(a, b)| [a.min(b), a.max(b)]).boxed(),
    }
}

fn cases() -> impl Strategy<Value = Case> {
    let models = [("tiny-ouro", &Criterion::ALL[..]), ("tiny-huginn", &Criterion::ALL[1..])];
    let choice = proptest::sample::select(models.to_vec())
        .prop_flat_map(|(model, criteria)| (Just(model), proptest::sample::select(criteria.to_vec())));
    choice.prop_flat_map(|(model, criterion)| {
        let signals = proptest::collection::vec(signals(criterion), 2..12);
        let min_depth = proptest::option::of((1..12_u8).prop_map(Depth));
        (signals, thresholds(criterion), min_depth, any::<bool>()).prop_map(
            move |(signals, thresholds, min_depth, lookahead)| Case {
                model,
                criterion,
                signals,
                thresholds,
                min_depth,
                lookahead,
            },
        )
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn a_token_leaves_once_between_the_first_allowed_loop_and_the_last(case in cases()) {
        let gate = case.gate(case.thresholds[0]);
        let (decided, leaves) = case.exit(case.thresholds[0]);
        prop_assert!(leaves <= case.r_max());
        prop_assert!(leaves >= Depth(gate.first.0 + gate.delay).min(case.r_max()));
        // A gate that looks ahead says so one loop before, and then it is not late.
        prop_assert!(decided.0 + gate.delay <= leaves.0 || leaves == case.r_max());
        prop_assert!(decided.0 <= case.r_max().0 - u8::from(gate.looks_ahead()));
    }

    #[test]
    fn a_stricter_threshold_leaves_no_earlier(case in cases()) {
        let [strict, loose] = case.thresholds;
        prop_assert!(case.exit(strict).1 >= case.exit(loose).1);
    }

    #[test]
    fn looking_ahead_leaves_one_loop_later_where_nothing_is_trained_for_it(case in cases()) {
        let at_once = Case { lookahead: false, ..case.clone() }.exit(case.thresholds[0]).1;
        let ahead = Case { lookahead: true, ..case.clone() }.exit(case.thresholds[0]).1;
        prop_assert_eq!(ahead, at_once.next().min(case.r_max()));
    }

    #[test]
    fn a_minimum_depth_holds_back_and_forgets_nothing(case in cases()) {
        let free = Case { min_depth: None, lookahead: false, ..case.clone() };
        let held = Case { lookahead: false, ..case.clone() };
        let (free, kept) = (free.exit(case.thresholds[0]).1, held.exit(case.thresholds[0]).1);
        let min = case.min_depth.unwrap_or(Depth::FIRST).min(case.r_max());
        prop_assert!(kept >= free.max(min));
        // Who leaves behind the minimum anyway leaves where it did.
        prop_assert!(free < min || kept == free);
    }

    #[test]
    fn the_end_of_the_range_is_full_depth_and_the_published_threshold_the_default(case in cases()) {
        let never = match case.criterion {
            Criterion::Hazard => 1.0,
            Criterion::ArgmaxStability => f32::from(case.r_max().0),
            _ => 0.0,
        };
        prop_assert!(case.gate(never).never_fires());
        prop_assert_eq!(case.exit(never).1, case.r_max());
        let spec = GateSpec { criterion: Some(case.criterion), ..GateSpec::default() };
        let architecture = Architecture::builtin(case.model).expect("built in");
        let gate = Gate::new(spec, &architecture, case.r_max(), false);
        prop_assert_eq!(gate.ok().map(|gate| gate.threshold), case.criterion.published_threshold());
    }
}
