//! Black-box calibration of our own server around a device whose profile is known: the coefficients come back.

use calibrate::outside::{Grid, Outside, measure};
use client::{Endpoint, Exits, Wishes, probe};
use engine::batch::{Batch, Outcome};
use engine::executor::{Clock, Executor, Reject};
use engine::live::wall_clock::WallClock;
use engine::live::weights::folder::ModelFolder;
use engine::profile::{Buckets, DeviceSpec, PrefillCost, Profile, StageCost};
use engine::request::RequestId;
use engine::submission::{Sampling, Submission};
use engine::units::{Depth, Nanos};
use serve::engine_thread;
use serve::http::{Guard, Limits};
use serve::model::ServedModel;
use serve::settings::Settings;
use sim::run::modelled::{Modelled, Never};

use crate::server::{Server, folder};

const SCENARIO: &str = "
scheduler: { max_num_seqs: 16, max_context_tokens: 700, overlap: asynchronous }
kv: { blocks: 4096, layout: last_exited }
compare: [{ mode: continuous_batching }]
";

/// A device that takes as long as a profile says, in real time, and makes the same token always.
struct Paced(Modelled<traces::Exits>);

impl Executor for Paced {
    type Error = Never;

    fn submit(&mut self, submission: &Submission) -> Result<(), Reject> {
        self.0.submit(submission)
    }

    fn forget(&mut self, request: RequestId) {
        self.0.forget(request);
    }

    fn launch(&mut self, batch: Batch, clock: &mut dyn Clock) -> Result<(), Never> {
        self.0.launch(batch, clock)
    }

    fn wait(&mut self, clock: &mut dyn Clock) -> Result<Outcome, Never> {
        let outcome = self.0.wait(clock)?;
        let tokens = outcome.batch.rows.iter().map(|row| row.emitted() as usize).sum();
        Ok(Outcome { tokens: vec![40; tokens], ..outcome })
    }
}

/// A whole step: 10 ms, 0.5 ms a row, and 1 us for each KV entry. Nothing of it is a sum of powers of two.
fn known(model: &engine::architecture::Architecture) -> Profile {
    let loops = f64::from(model.r_max.0);
    let device = DeviceSpec { name: "paced".into(), bandwidth_gb_per_s: 1000.0, compute_tflops: 100.0 };
    let stage = |delta_ms, gamma_us, alpha_ns| StageCost { delta_ms, floor_ms: 0.0, gamma_us, alpha_ns };
    Profile {
        core: stage(8.0 / loops, 400.0 / loops, 1000.0 / loops),
        prelude: stage(0.5, 20.0, 0.0),
        coda: stage(1.5, 80.0, 0.0),
        prefill: PrefillCost { delta_ms: 4.0, gamma_us: 60.0, alpha_ns: 20.0, ..PrefillCost::default() },
        host: Default::default(),
        buckets: Buckets::Exact,
        stage_overhead_us: 0.0,
        ..Profile::roofline(&device, model)
    }
}

fn paced(profile: Profile, scenario: &std::path::Path) -> Server {
    let model = ModelFolder::open(&folder()).unwrap();
    let vocab = model.architecture().vocab;
    let (tokenizer, chat) = ServedModel::text(&folder(), vocab).unwrap();
    let settings = Settings::read(Some(scenario)).unwrap();
    let engine = engine_thread::start(64, move || {
        let config = settings.config(model.architecture(), Some(1000), 4096)?;
        let exits = traces::Exits::FullDepth(model.architecture().r_max);
        Ok((Paced(Modelled::new(&profile, model.architecture(), &config, false, exits)), config))
    });
    let engine = engine.unwrap();
    let model = ServedModel {
        name: "paced".into(),
        tokenizer,
        chat,
        vocab: vocab as u32,
        context_tokens: engine.config.max_context_tokens,
        end_tokens: [2].into(),
        sampling: Sampling::GREEDY,
        exit_threshold: 1.0,
        first_exit: Depth(1),
        full_depth_only: true,
    };
    Server::around(engine, model, Limits::default(), Guard::default())
}

#[test]
fn a_known_profile_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("server.yaml");
    std::fs::write(&file, SCENARIO).unwrap();
    let model = ModelFolder::open(&folder()).unwrap().architecture().clone();
    let server = paced(known(&model), &file);
    let endpoint = Endpoint::new(&format!("http://{}", server.client.0), None).unwrap();
    let wishes = Wishes { model: None, vocab: Some(model.vocab as u32), seed: 0, exits: Exits::FullDepth };
    let (dialect, _) = probe(&endpoint, &wishes).unwrap();
    let grid = Grid {
        batches: vec![1, 4, 16],
        contexts: vec![32, 256, 512],
        prompts: vec![16, 100, 200, 300, 400, 500],
        output_tokens: 28,
        loops: model.r_max,
    };
    let rounds = measure((&endpoint, &dialect), &grid, (&WallClock::start(), Nanos::ZERO), 2).unwrap();
    assert!(rounds.left_out.is_empty(), "{:?}", rounds.left_out);
    let outside = Outside::new(&rounds, &model, Buckets::Exact).unwrap();
    // delta, floor, gamma, alpha. What the host and the way to the client take is in delta.
    let step = [10.0, 0.0, 500.0, 1000.0];
    for ((name, value, half), known) in outside.coefficients().zip(step) {
        eprintln!("{name}: {value} +- {half:?} for {known}");
        if half.is_some() && known > 0.0 {
            assert!((value / known - 1.0).abs() < 0.1, "{name}: {value} for {known}");
        }
    }
    // The way there and back is in the prefill's delta, so what is known comes back as a difference of two lengths.
    let longer_ms = |cost: PrefillCost| cost.time_ms([(0, 450)]) - cost.time_ms([(0, 50)]);
    let (prefill_ms, known_ms) = (longer_ms(outside.prefill.cost()), longer_ms(known(&model).prefill));
    assert!((prefill_ms / known_ms - 1.0).abs() < 0.15, "{prefill_ms} ms for {known_ms} ms");
}
