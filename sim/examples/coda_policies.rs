//! Every setting of the paper: the adaptive coda against every fixed K, on the same requests.
//!
//! `cargo run --release -p sim --example coda_policies [FILTER]` takes minutes; a filter such as `huginn-3.5b sharegpt` less.

use engine::scheduler::Mode;
use reports::{Cell, Grid};
use sim::parallel;
use sim::run::plan::Plan;
use sim::run::serve::{Discard, serve};
use sim::scenario::load;

/// Models with their thresholds, the most aggressive first: that one is run at every width.
const MODELS: [(&str, &[&str]); 2] = [
    ("ouro-1.4b", &["ouro-q0.2", "ouro-q0.4", "ouro-q0.5", "ouro-q0.7"]),
    ("huginn-3.5b", &["huginn-0.28", "huginn-0.16", "huginn-0.1"]),
];

/// Workloads with the paper's request counts and the width of its threshold sweeps.
const WORKLOADS: [(&str, u32, u32); 3] = [("alpaca", 10_000, 64), ("sharegpt", 6_000, 64), ("arxiv", 1_000, 8)];

struct Setting {
    model: &'static str,
    lengths: &'static str,
    exits: &'static str,
    w: u32,
    requests: u32,
}

fn main() {
    let filter = std::env::args().nth(1).unwrap_or_default();
    let settings: Vec<Setting> = settings().into_iter().filter(|setting| setting.name().contains(&filter)).collect();
    let Ok(rows) = parallel::try_map(settings.len(), |index| Ok::<_, std::convert::Infallible>(settings[index].row()));
    let columns =
        ["setting", "best K", "tokens/s", "adaptive, %", "K = 1, %", "K = W/4, %", "K = W, %", "no refill, %"];
    let mut grid = Grid::new(columns);
    rows.into_iter().for_each(|row| grid.push(row));
    print!("{}", grid.text());
}

fn settings() -> Vec<Setting> {
    let mut settings = Vec::new();
    for (model, thresholds) in MODELS {
        for (lengths, requests, narrow) in WORKLOADS {
            for (index, exits) in thresholds.iter().copied().enumerate() {
                let widths = if index == 0 { (1..=9).map(|e| 1 << e).collect() } else { vec![narrow] };
                // Forty requests a slot are a steady state, and narrow runs stay short.
                let of = |w| Setting { model, lengths, exits, w, requests: requests.min(40 * w) };
                settings.extend(widths.into_iter().map(of));
            }
        }
    }
    settings
}

impl Setting {
    fn name(&self) -> String {
        format!("{} {} {} W={}", self.model, self.lengths, self.exits, self.w)
    }

    /// Throughputs against the best fixed K among 1, 2, 3, 4, 6, 8, .., W.
    fn row(&self) -> Vec<Cell> {
        let Self { model, lengths, exits, w, requests } = *self;
        let mut yaml = format!(
            "model: {model}\nprofile: h100-paper\nworkload: {{ lengths: {lengths}, requests: {requests}, arrivals: offline }}\n\
             exits: {{ preset: {{ name: {exits} }} }}\nscheduler: {{ max_num_seqs: {w} }}\nseed: 3\n\
             compare:\n- mode: adaptive_refill\n- mode: no_refill\n"
        );
        let ks = (0..10).flat_map(|e| [1 << e, 3 << e]).filter(|&k| k <= w);
        ks.for_each(|k| yaml.push_str(&format!("- {{ mode: refill, min_coda_batch: {k} }}\n")));
        let plan = Plan::new(load::parse(&yaml).expect("a scenario")).expect("a plan");
        let throughputs = plan.schedulers.iter().map(|planned| {
            let Ok(recorder) = serve(&plan, planned, &mut Discard);
            (planned.config.mode, recorder.metrics().throughput_tokens_per_s)
        });
        let throughputs: Vec<(Mode, f64)> = throughputs.collect();
        let fixed = |mode| if let Mode::Refill { min_coda_batch } = mode { Some(min_coda_batch) } else { None };
        let ks = throughputs.iter().filter_map(|&(mode, throughput)| Some((fixed(mode)?, throughput)));
        let (k, best) = ks.max_by(|one, other| one.1.total_cmp(&other.1)).expect("K = 1 was run");
        let percent = |wanted: &dyn Fn(Mode) -> bool| {
            let found = throughputs.iter().find(|(mode, _)| wanted(*mode));
            Cell::text(
                found.map_or_else(String::new, |(_, throughput)| format!("{:+.2}", 100.0 * (throughput / best - 1.0))),
            )
        };
        vec![
            Cell::text(self.name()),
            Cell::text(k.to_string()),
            best.into(),
            percent(&|mode| matches!(mode, Mode::AdaptiveRefill(_))),
            percent(&|mode| fixed(mode) == Some(1)),
            percent(&|mode| fixed(mode) == Some((w / 4).max(1))),
            percent(&|mode| fixed(mode) == Some(w)),
            percent(&|mode| mode == Mode::NoRefill),
        ]
    }
}
