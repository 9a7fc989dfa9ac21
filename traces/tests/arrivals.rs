//! Arrival processes: moments, order and ends.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails where it stands")]

use engine::units::Nanos;
use proptest::prelude::*;
use traces::ArrivalsConfig;
use traces::arrivals::ArrivalTimes;
use traces::numbers::{Burstiness, RatePerS, Seconds};

fn rate(per_s: f64) -> RatePerS {
    RatePerS::try_from(per_s).unwrap()
}

fn poisson(per_s: f64) -> ArrivalsConfig {
    ArrivalsConfig::Poisson { rate_per_s: rate(per_s), duration_s: None }
}

fn gamma(per_s: f64, burstiness: f64) -> ArrivalsConfig {
    let burstiness = Burstiness::try_from(burstiness).unwrap();
    ArrivalsConfig::Gamma { rate_per_s: rate(per_s), burstiness, duration_s: None }
}

fn times(config: ArrivalsConfig, seed: u64) -> ArrivalTimes<'static> {
    ArrivalTimes::new(&config, None, seed).unwrap()
}

/// Mean and squared coefficient of variation of the gaps, in seconds.
fn moments(config: ArrivalsConfig) -> (f64, f64) {
    const GAPS: usize = 200_000;
    let mut before = Nanos::ZERO;
    let gaps: Vec<f64> =
        times(config, 11).take(GAPS).map(|time| (time - std::mem::replace(&mut before, time)).as_secs()).collect();
    let mean = gaps.iter().sum::<f64>() / GAPS as f64;
    let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / GAPS as f64;
    (mean, variance / (mean * mean))
}

#[test]
fn gaps_have_the_mean_of_the_rate_and_the_variation_of_the_burstiness() {
    let check = |config, mean: f64, variation: f64| {
        let (got_mean, got_variation) = moments(config);
        assert!((got_mean / mean - 1.0).abs() < 0.02, "{config:?}: mean {got_mean}");
        assert!((got_variation / variation - 1.0).abs() < 0.05, "{config:?}: variation {got_variation}");
    };
    check(poisson(4.0), 0.25, 1.0);
    check(gamma(4.0, 1.0), 0.25, 1.0);
    check(gamma(4.0, 0.25), 0.25, 4.0);
    check(gamma(4.0, 10.0), 0.25, 0.1);
}

#[test]
fn counts_of_a_poisson_process_vary_as_their_mean() {
    let windows = 20_000;
    let mut counts = vec![0.0; windows];
    for time in times(gamma(3.0, 1.0), 5) {
        let window = time.as_secs() as usize;
        if window >= windows {
            break;
        }
        counts[window] += 1.0;
    }
    let mean = counts.iter().sum::<f64>() / windows as f64;
    let variance = counts.iter().map(|count| (count - mean).powi(2)).sum::<f64>() / windows as f64;
    assert!((mean / 3.0 - 1.0).abs() < 0.02 && (variance / mean - 1.0).abs() < 0.05, "{mean} {variance}");
}

#[test]
fn a_duration_ends_the_stream_and_changes_nothing_before() {
    let duration_s = Some(Seconds::try_from(50.0).unwrap());
    let short: Vec<_> = times(ArrivalsConfig::Poisson { rate_per_s: rate(4.0), duration_s }, 3).collect();
    let endless: Vec<_> = times(poisson(4.0), 3).take(short.len() + 1).collect();
    assert_eq!(short, endless[..short.len()]);
    assert!(short.iter().all(|time| time.as_secs() < 50.0) && endless[short.len()].as_secs() >= 50.0);
}

#[test]
fn offline_requests_arrive_at_zero_and_a_trace_needs_a_file() {
    assert!(times(ArrivalsConfig::Offline, 1).take(10).all(|time| time == Nanos::ZERO));
    assert!(ArrivalTimes::new(&ArrivalsConfig::Trace, None, 1).is_none());
}

proptest! {
    #[test]
    fn arrivals_are_in_order_and_repeat(per_s in 0.01f64..1e6, burstiness in 0.01f64..1000.0, seed: u64) {
        let config = gamma(per_s, burstiness);
        let all: Vec<_> = times(config, seed).take(500).collect();
        prop_assert!(all.is_sorted());
        prop_assert_eq!(all, times(config, seed).take(500).collect::<Vec<_>>());
    }
}
