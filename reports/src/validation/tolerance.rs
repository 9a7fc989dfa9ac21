//! How far a prediction may be off.

use serde::{Serialize, Serializer, ser::SerializeStruct};

use super::{MetricPair, SchedulerValidation};
use crate::format::percent;

/// A tolerance is no tighter than so many times the spread of the live runs themselves.
const SPREADS: f64 = 2.0;

/// Live runs that differ by more than this part of a figure's own tolerance say nothing of a prediction: 5% for throughput.
const SPREAD_MAX: f64 = 5.0 / 3.0;

/// Up to this share of its capacity a scheduler's latencies are judged: beyond, small errors of the load grow large.
const LOAD_MAX: f64 = 0.85;

/// A TTFT that is this close is right, however short it is.
const TTFT_S: f64 = 0.010;

/// A prediction, judged.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// The metric's name.
    pub metric: String,
    /// How far it is off: `(predicted - measured) / measured`, but `predicted - measured` for shares.
    pub off: f64,
    /// How far it may be off to either side.
    pub allowed: f64,
    /// How far the live runs differ, in the unit of `off`, if that is too far to judge by them.
    pub unsteady: Option<f64>,
}

impl Verdict {
    /// Whether the prediction is close enough; `None` if the live runs differ too much to say.
    pub fn met(&self) -> Option<bool> {
        self.unsteady.is_none().then(|| self.off.abs() <= self.allowed)
    }

    /// Why it is not judged, in words.
    pub(super) fn reason(&self) -> Option<String> {
        self.unsteady.map(|spread| format!("repeats differ by {}%", percent(spread)))
    }

    /// Within `tolerance`, or within twice the spread of the live runs if that is more, unless they differ too much.
    fn new(metric: &str, off: f64, tolerance: f64, spread: f64) -> Self {
        let unsteady = (spread > SPREAD_MAX * tolerance).then_some(spread);
        let allowed = if unsteady.is_some() { tolerance } else { tolerance.max(SPREADS * spread) };
        Self { metric: metric.into(), off, allowed, unsteady }
    }

    /// Of what is the same in every live run.
    pub(super) fn certain(metric: &str, off: f64, tolerance: f64) -> Self {
        Self::new(metric, off, tolerance, 0.0)
    }
}

/// How many of a list of predictions are close enough, and how many are not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) met: usize,
    pub(super) missed: usize,
    pub(super) not_judged: usize,
}

impl Tally {
    pub(super) fn of<'a>(verdicts: impl IntoIterator<Item = &'a Verdict>) -> Self {
        let mut tally = Self::default();
        for verdict in verdicts {
            match verdict.met() {
                Some(true) => tally.met += 1,
                Some(false) => tally.missed += 1,
                None => tally.not_judged += 1,
            }
        }
        tally
    }
}

impl Serialize for Verdict {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let reason = self.reason();
        let mut fields = serializer.serialize_struct("Verdict", 4 + usize::from(reason.is_some()))?;
        fields.serialize_field("metric", &self.metric)?;
        fields.serialize_field("off", &self.off)?;
        fields.serialize_field("allowed", &self.allowed)?;
        fields.serialize_field("met", &self.met())?;
        if let Some(reason) = reason {
            fields.serialize_field("not_judged", &reason)?;
        }
        fields.end()
    }
}

impl SchedulerValidation {
    /// Every prediction that has a tolerance. The baseline's own speed-up is no prediction.
    pub fn verdicts(&self, online: bool) -> Vec<Verdict> {
        let latencies = match self.load {
            None => !online,
            Some(load) => load.share().is_some_and(|share| share <= LOAD_MAX),
        };
        let given = |pair: &&MetricPair| !(pair.predicted == 1.0 && pair.measured == 1.0);
        let metrics = self.metrics.iter().filter(given).filter_map(|pair| verdict(pair, online, latencies));
        let batches =
            self.batches_identical.map(|same| Verdict::certain("batches_identical", f64::from(u8::from(!same)), 0.0));
        metrics.chain(batches).collect()
    }
}

fn verdict(pair: &MetricPair, online: bool, latencies: bool) -> Option<Verdict> {
    let tolerance = match pair.name.as_str() {
        "throughput_tokens_per_s" | "speedup" if !online => 0.03,
        "tpot_mean_s" | "tpot_p95_s" => 0.03,
        "e2e_mean_s" | "normalized_mean_s" if latencies => 0.05,
        "e2e_p95_s" | "e2e_p99_s" | "normalized_p95_s" | "normalized_p99_s" if latencies => 0.09,
        "ttft_mean_s" => (TTFT_S / pair.measured).max(0.10),
        "ttft_p99_s" => 0.15,
        "realised_share" => {
            let off = pair.predicted - pair.measured;
            return Some(Verdict::new(&pair.name, off, 0.02, pair.live_spread * pair.measured));
        }
        _ => return None,
    };
    Some(Verdict::new(&pair.name, pair.error, tolerance, pair.live_spread))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(name: &str, predicted: f64, measured: f64, live_spread: f64) -> MetricPair {
        MetricPair { name: name.into(), predicted, measured, error: predicted / measured - 1.0, live_spread }
    }

    #[test]
    fn tolerances_are_those_of_the_metric_and_the_load() {
        let check = |pair: MetricPair, latencies, allowed: Option<f64>| {
            let found = verdict(&pair, false, latencies).map(|verdict| verdict.allowed);
            assert_eq!(found, allowed, "{pair:?}");
        };
        check(pair("speedup", 1.5, 1.4, 0.0), true, Some(0.03));
        check(pair("speedup", 1.5, 1.4, 0.02), true, Some(0.04));
        check(pair("normalized_p99_s", 1.0, 1.0, 0.0), true, Some(0.09));
        check(pair("normalized_p99_s", 1.0, 1.0, 0.0), false, None);
        check(pair("ttft_mean_s", 0.06, 0.05, 0.0), true, Some(TTFT_S / 0.05));
        check(pair("ttft_mean_s", 1.0, 1.0, 0.0), true, Some(0.1));
        check(pair("mean_core_batch", 1.0, 1.0, 0.0), true, None);
        assert_eq!(
            verdict(&pair("throughput_tokens_per_s", 2.0, 1.0, 0.0), true, true),
            None,
            "the rate decides online"
        );
    }

    #[test]
    fn shares_are_judged_in_points() {
        let judge =
            |predicted| verdict(&pair("realised_share", predicted, 0.5, 0.0), false, true).expect("judged").met();
        assert_eq!([0.515, 0.525, 0.475].map(judge), [Some(true), Some(false), Some(false)]);
    }

    #[test]
    fn live_runs_that_differ_too_much_judge_nothing() {
        let judge = |name: &str, predicted, measured, spread| {
            verdict(&pair(name, predicted, measured, spread), false, true).expect("has a tolerance")
        };
        // Twice the spread of such runs would let anything pass.
        let far = judge("throughput_tokens_per_s", 1.72, 1.0, 0.38);
        assert_eq!((far.met(), far.reason().as_deref()), (None, Some("repeats differ by 38.0%")));
        assert_eq!(judge("throughput_tokens_per_s", 1.0, 1.0, 0.38).met(), None, "nor is a close one right");
        assert_eq!(judge("throughput_tokens_per_s", 1.09, 1.0, 0.049).met(), Some(true));
        assert_eq!(judge("throughput_tokens_per_s", 1.11, 1.0, 0.049).met(), Some(false));
        // The limit goes with the figure's own tolerance, as docs/validate.md lists.
        for (name, measured, limit) in [
            ("speedup", 1.0, 0.05),
            ("realised_share", 0.5, 2.0 * 0.0333),
            ("tpot_p95_s", 1.0, 0.05),
            ("e2e_mean_s", 1.0, 0.0833),
            ("normalized_p99_s", 1.0, 0.15),
            ("ttft_mean_s", 1.0, 0.1666),
            ("ttft_mean_s", 0.01, 1.666),
            ("ttft_p99_s", 1.0, 0.25),
        ] {
            let judged = |spread| judge(name, measured, measured, spread).met();
            assert_eq!((judged(0.99 * limit), judged(1.01 * limit)), (Some(true), None), "{name}");
        }
    }

    #[test]
    fn a_tally_counts_what_is_not_judged_apart() {
        let of = |off, spread| Verdict::new("speedup", off, 0.03, spread);
        let tally = Tally::of(&[of(0.01, 0.0), of(0.2, 0.0), of(0.2, 0.4), of(0.0, 0.4)]);
        assert_eq!(tally, Tally { met: 1, missed: 1, not_judged: 2 });
    }

    #[test]
    fn a_file_has_null_and_the_reason_where_nothing_was_judged() {
        let json = |verdict: &Verdict| serde_json::to_value(verdict).expect("numbers and words");
        let unsteady = json(&Verdict::new("speedup", 0.7, 0.03, 0.38));
        assert_eq!((&unsteady["met"], &unsteady["not_judged"]), (&().into(), &"repeats differ by 38.0%".into()));
        let judged = json(&Verdict::new("speedup", 0.7, 0.03, 0.0));
        assert_eq!((&judged["met"], judged.get("not_judged")), (&false.into(), None));
    }
}
