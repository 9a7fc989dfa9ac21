//! What the scenarios of shared prefixes and of prompts' shares show.

use engine::metrics::{PrefixCacheMetrics, RunMetrics};
use engine::scheduler::Prefill;
use sim::run::plan::Plan;
use sim::run::serve::{Discard, serve};
use sim::scenario::Scenario;

fn scenario(text: &str) -> Scenario {
    Scenario { sweep: None, ..sim::scenario::load::parse(text).expect("valid YAML") }
}

fn run(plan: &Plan) -> RunMetrics {
    let Ok(recorder) = serve(plan, &plan.schedulers[plan.schedulers.len() - 1], &mut Discard);
    recorder.metrics()
}

/// A decode step of continuous batching runs all loops. If only one prefill batch may come before the next, prompts wait; as
/// many as there are loops give them back most of their time, for little of the time between tokens.
#[test]
fn a_share_of_as_many_prefills_as_loops_restores_the_time_to_the_first_token() {
    let plan = Plan::new(scenario(include_str!("../scenarios/prefixes/share.yaml"))).expect("it can be run");
    let [one, four, first] = [Prefill::Share(1), Prefill::Share(4), Prefill::First].map(|prefill| {
        let mut plan = plan.clone();
        plan.schedulers[0].config.prefill = prefill;
        run(&plan)
    });
    assert!(four.ttft.p90 < 0.6 * one.ttft.p90, "{} s and {} s at p90", four.ttft.p90, one.ttft.p90);
    assert!(four.tpot.p50 > one.tpot.p50 && four.tpot.p50 < 1.1 * one.tpot.p50);
    assert!(first.ttft.p90 <= four.ttft.p90 && first.itl.p99 > one.itl.p99);
    assert!((four.throughput_tokens_per_s / one.throughput_tokens_per_s - 1.0).abs() < 0.01);
}

/// The hit rate falls as the texts outgrow the pool, and with it what the cache gains.
#[test]
fn hits_fall_as_prefixes_outgrow_the_pool() {
    let text = "model: ouro-1.4b\nprofile: h100-paper\nexits: full_depth\n\
                workload: { lengths: { fixed: { prompt_tokens: 32, output_tokens: 32 } }, requests: 600, arrivals: offline }\n\
                scheduler: { max_num_seqs: 16 }\nkv: { blocks: 4096 }\ncompare: [{ mode: refill }]";
    let cold = run(&Plan::new(scenario(text)).expect("it can be run"));
    let mut last = (1.0, f64::INFINITY);
    for groups in [8, 64, 512] {
        let text = text.replace(
            "requests: 600",
            &format!("requests: 600, shared_prefixes: {{ groups: {groups}, prefix_tokens: 1024 }}"),
        );
        let without = run(&Plan::new(scenario(&text)).expect("it can be run"));
        let text = text.replace("blocks: 4096", "blocks: 4096, prefix_cache: { pages: prompt }");
        let with = run(&Plan::new(scenario(&text)).expect("it can be run"));
        let PrefixCacheMetrics { hit_rate, evicted_pages, .. } = with.prefix_cache.expect("there is a cache");
        let gain = with.throughput_tokens_per_s / without.throughput_tokens_per_s;
        assert!(hit_rate < last.0 && gain < last.1 && gain > 0.999, "{groups} groups: {hit_rate}, {gain}");
        assert!(with.throughput_tokens_per_s < cold.throughput_tokens_per_s, "prefixes are read, if not computed");
        assert!(
            without.prefix_cache.is_none() && (evicted_pages > 0) == (groups > 8),
            "{groups} groups: {evicted_pages}"
        );
        last = (hit_rate, gain);
    }
}
