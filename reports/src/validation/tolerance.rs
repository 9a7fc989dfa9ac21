//! How far a prediction may be off.

use serde::{Serialize, Serializer, ser::SerializeStruct};

use super::{MetricPair, SchedulerValidation};

/// A tolerance is no tighter than so many times the spread of the live runs themselves.
const SPREADS: f64 = 2.0;

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
}

impl Verdict {
    /// The prediction is close enough.
    pub fn met(&self) -> bool {
        self.off.abs() <= self.allowed
    }
}

impl Serialize for Verdict {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Verdict", 4)?;
        fields.serialize_field("metric", &self.metric)?;
        fields.serialize_field("off", &self.off)?;
        fields.serialize_field("allowed", &self.allowed)?;
        fields.serialize_field("met", &self.met())?;
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
        let batches = self.batches_identical.map(|same| Verdict {
            metric: "batches_identical".into(),
            off: f64::from(u8::from(!same)),
            allowed: 0.0,
        });
        metrics.chain(batches).collect()
    }
}

fn verdict(pair: &MetricPair, online: bool, latencies: bool) -> Option<Verdict> {
    let (family, statistic) = pair.name.split_once('.').unwrap_or((&pair.name, ""));
    let allowed = match (family, statistic) {
        ("throughput_tokens_per_s" | "speedup", "") if !online => 0.03,
        ("tpot_s", "mean" | "p95") => 0.03,
        ("e2e_s" | "normalized_s", "mean") if latencies => 0.05,
        ("e2e_s" | "normalized_s", "p95" | "p99") if latencies => 0.09,
        ("ttft_s", "mean") => (TTFT_S / pair.measured).max(0.10),
        ("ttft_s", "p99") => 0.15,
        ("realised_share", "") => {
            return Some(Verdict {
                metric: pair.name.clone(),
                off: pair.predicted - pair.measured,
                allowed: (SPREADS * pair.live_spread * pair.measured).max(0.02),
            });
        }
        _ => return None,
    };
    let allowed = allowed.max(SPREADS * pair.live_spread);
    Some(Verdict { metric: pair.name.clone(), off: pair.error, allowed })
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
        check(pair("normalized_s.p99", 1.0, 1.0, 0.0), true, Some(0.09));
        check(pair("normalized_s.p99", 1.0, 1.0, 0.0), false, None);
        check(pair("ttft_s.mean", 0.06, 0.05, 0.0), true, Some(TTFT_S / 0.05));
        check(pair("ttft_s.mean", 1.0, 1.0, 0.0), true, Some(0.1));
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
        assert!(judge(0.515) && !judge(0.525) && !judge(0.475));
    }
}
