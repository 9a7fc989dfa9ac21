//! `sim observe` against our own server: its figures are what the engine itself has counted.

use client::Endpoint;
use reports::Measures;
use serve::http::{Guard, Limits};
use sim::observe::Server as Observed;
use sim::run::output::Files;
use sim::run::plan::Plan;

use crate::server::{Server, folder};

/// The small model behind a gate that fires now and then, and requests in time.
fn scenario(exits: &str) -> String {
    format!(
        "model: {{ folder: {} }}\nprofile: {{ roofline: {{ gpu: h200 }} }}\n\
         workload: {{ lengths: {{ fixed: {{ prompt_tokens: 24, output_tokens: 12 }} }}, requests: 30, arrivals: {{ poisson: {{ rate_per_s: 30 }} }} }}\n\
         exits: {exits}\nscheduler: {{ max_num_seqs: 8, max_context_tokens: 256, overlap: asynchronous }}\n\
         kv: {{ blocks: 512, layout: last_exited }}\ncompare: [{{ mode: refill }}]\noutput: {{ plots: false, steps: false }}\n",
        folder().display()
    )
}

#[test]
fn the_clients_figures_are_the_engines() {
    for exits in ["{ gate: { threshold: 0.5 } }", "full_depth"] {
        let text = scenario(exits);
        let server = Server::with(
            "scheduler: { max_num_seqs: 8, max_context_tokens: 256 }\nkv: { blocks: 512 }",
            Limits::default(),
            Guard::default(),
        );
        let plan = Plan::for_live(sim::scenario::load::parse(&text).unwrap(), None).unwrap();
        let endpoint = Endpoint::new(&format!("http://{}", server.client.0), None).unwrap();
        let observed = Observed::probe(endpoint, &plan, None).unwrap();
        assert_eq!(observed.dialect.model, "tiny");
        assert!(observed.tells_depths && observed.dialect.vocab.is_some());
        let series =
            ["prompt_tokens_total", "output_tokens_total", "exit_depth_sum", "time_to_first_token_seconds_sum"];
        let before = series.map(|name| server.client.metric(name));
        let dir = tempfile::tempdir().unwrap();
        let mut files = Files::create(dir.path(), &plan.scenario.output).unwrap();
        let seen = observed.observe(&plan, 1, "ours", &mut files).unwrap();
        let told: Vec<f64> =
            series.iter().zip(before).map(|(name, before)| server.client.metric(name) - before).collect();

        let metrics = &seen.schedulers[1].metrics;
        assert_eq!((metrics.requests.arrived, metrics.requests.finished), (30, 30));
        assert_eq!((metrics.prompt_tokens as f64, metrics.output_tokens as f64), (told[0], told[1]));
        // The engine counts each request's first token too, which prefill makes at full depth.
        let decoded: u64 = metrics.exit_depths.iter().enumerate().map(|(depth, tokens)| depth as u64 * tokens).sum();
        let first = 30 * u64::from(plan.model.r_max.0);
        assert_eq!((decoded + first) as f64, told[2], "{exits}");
        // The client waits a little longer than the engine takes: for the way there and back, and for its own turn.
        let (client_s, engine_s) = (metrics.ttft.mean, told[3] / 30.0);
        assert!((0.0..0.02).contains(&(client_s - engine_s)), "{client_s} s seen, {engine_s} s counted");
        let measured = Measures::new(metrics);
        assert!(measured.mean_exit_depth.is_some());
        assert_eq!(seen.recording.is_some(), exits != "full_depth", "a gate's exits are kept");
        // What was predicted took the exits that were told.
        let predicted = &seen.schedulers[0].metrics;
        assert_eq!(predicted.exit_depths, metrics.exit_depths, "{exits}");
        if exits == "full_depth" {
            assert_eq!(metrics.mean_exit_depth, f64::from(plan.model.r_max.0));
        } else {
            assert!(metrics.mean_exit_depth < f64::from(plan.model.r_max.0), "the gate fires");
        }
    }
}
