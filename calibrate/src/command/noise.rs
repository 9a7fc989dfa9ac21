//! How well the rounds of a table agree, on stderr and in a profile's source.

use calibrate::measure::noise::Noise;
use calibrate::measurements::Measurement;
use calibrate::rounds::{SlowRound, slow_rounds};

/// Reports spread and drift, and every round that is slower everywhere; `more` says how to get repeats where there are none.
pub(super) fn report(rows: &[Measurement], more: &str) -> Option<Noise> {
    let noise = Noise::of(rows);
    match &noise {
        None => eprintln!("warning: no point was timed twice, so nobody knows how noisy the times are: {more}"),
        Some(noise) => {
            eprintln!("{}", in_words(noise));
            if !noise.is_low() {
                eprintln!("warning: the times are noisy; close what else runs on the machine and measure again");
            }
        }
    }
    for SlowRound { round, times } in slow_rounds(rows) {
        eprintln!(
            "warning: round {round} (counted from 0) took {times:.2} times as long as the others, at every point: leave its rows out, \
             or measure again"
        );
    }
    noise
}

/// One line, for stderr.
fn in_words(noise: &Noise) -> String {
    let [spread, drift, disturbed] = [noise.spread, noise.drift, noise.disturbed].map(|share| share * 1e2);
    format!("spread {spread:.1}%, drift {drift:+.1}%, {disturbed:.1}% disturbed")
}

/// The same for a profile's source.
pub(super) fn for_source(noise: Option<&Noise>) -> String {
    noise.map_or("no point repeated".into(), in_words)
}
