//! Every paper setting: fixed K against the adaptive coda, on the same requests.
//!
//! `cargo run --release -p sim --example coda_policies [-- FILTER]`

use engine::scheduler::Mode;
use sim::load;
use sim::plan::Plan;
use sim::run::{self, Discard};

fn main() {
    let filter = std::env::args().nth(1).unwrap_or_default();
    let presets = [
        ("ouro-1.4b", ["ouro-q0.2", "ouro-q0.4", "ouro-q0.5", "ouro-q0.7"].as_slice()),
        ("huginn-3.5b", ["huginn-0.28", "huginn-0.16", "huginn-0.1"].as_slice()),
    ];
    let scale: u32 = std::env::var("SCALE").ok().and_then(|s| s.parse().ok()).unwrap_or(4);
    println!("{:12} {:9} {:11} {:>4} {:>6} {:>9} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8}", "model", "workload", "exits", "W", "best K", "tokens/s", "K=1", "W/4", "W/2", "W", "no_ref", "adaptive");
    for (model, presets) in presets {
        for (lengths, requests) in [("alpaca", 10_000), ("sharegpt", 6_000), ("arxiv", 1_000)] {
            for (index, preset) in presets.iter().enumerate() {
                let own = if lengths == "arxiv" { 8 } else { 64 };
                let widths: &[u32] = if index == 0 { &[2, 4, 8, 16, 32, 64, 128, 256, 512] } else { &[own] };
                for &w in widths {
                    let name = format!("{model} {lengths} {preset} {w}");
                    if !name.contains(&filter) {
                        continue;
                    }
                    let requests = (requests / scale).min(w * 40).max(w * 4).max(60);
                    let mut ks: Vec<u32> = (0..10).map(|e| 1 << e).filter(|&k| k <= w).collect();
                    ks.extend((0..10).map(|e| 3 << e).filter(|&k| k <= w));
                    ks.sort();
                    let mut yaml = format!(
                        "model: {model}\nprofile: h100-paper\nworkload: {{ lengths: {lengths}, requests: {requests}, arrivals: offline }}\n\
                         exits: {{ preset: {{ name: {preset} }} }}\nscheduler: {{ max_num_seqs: {w} }}\nseed: 3\ncompare:\n- mode: adaptive_refill\n- mode: no_refill\n"
                    );
                    for k in &ks {
                        yaml += &format!("- {{ mode: refill, min_coda_batch: {k} }}\n");
                    }
                    let plan = Plan::new(load::parse(&yaml).expect("YAML")).expect("a plan");
                    let throughput: Vec<_> = plan
                        .schedulers
                        .iter()
                        .map(|planned| {
                            let Ok(recorder) = run::run(&plan, planned, &mut Discard);
                            (planned.config.mode, recorder.metrics().throughput_tokens_per_s)
                        })
                        .collect();
                    let fixed = |k: u32| throughput.iter().find(|(m, _)| *m == Mode::Refill { min_coda_batch: k }).map_or(f64::NAN, |x| x.1);
                    let best = ks.iter().copied().max_by(|a, b| fixed(*a).total_cmp(&fixed(*b))).unwrap_or(1);
                    let top = fixed(best);
                    let p = |x: f64| 100.0 * (x / top - 1.0);
                    println!(
                        "{model:12} {lengths:9} {preset:11} {w:4} {best:6} {top:9.1} {:8.2} {:8.2} {:8.2} {:8.2} {:8.2} {:8.2}",
                        p(fixed(1)), p(fixed((w / 4).max(1))), p(fixed((w / 2).max(1))), p(fixed(w)), p(throughput[1].1), p(throughput[0].1)
                    );
                }
            }
        }
    }
}
