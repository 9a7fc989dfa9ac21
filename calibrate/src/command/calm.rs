//! How well the rounds of a table agree, told on stderr.

use calibrate::measure::calm::Calm;
use calibrate::measurements::Measurement;
use calibrate::rounds::{SlowRound, slow_rounds};

/// Reports spread and drift, and every round that is slower everywhere; `more` says how to get repeats where there are none.
pub(super) fn report(rows: &[Measurement], more: &str) -> Option<Calm> {
    let calm = Calm::of(rows);
    match &calm {
        None => eprintln!("warning: no point was timed twice, so nobody knows how calm the machine was: {more}"),
        Some(calm) => {
            eprintln!("{}", in_words(calm));
            if !calm.is_calm() {
                eprintln!("warning: the machine was not calm; close what else runs on it and measure again");
            }
        }
    }
    for SlowRound { round, times } in slow_rounds(rows) {
        eprintln!(
            "warning: round {round} (counted from 0) took {times:.2} times as long as the others, at every point: leave its rows out, \
             or measure again"
        );
    }
    calm
}

/// One line, for stderr and for a profile's source.
pub(super) fn in_words(calm: &Calm) -> String {
    let [spread, drift, disturbed] = [calm.spread, calm.drift, calm.disturbed].map(|share| share * 1e2);
    format!("spread {spread:.1}%, drift {drift:+.1}%, {disturbed:.1}% disturbed")
}
