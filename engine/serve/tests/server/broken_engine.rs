//! Engines that break: everyone is told, and only the one at fault is harmed if that can be.

use engine::batch::{Batch, Outcome};
use engine::executor::{Clock, Executor, Reject};
use engine::live::cpu::{CpuExecutor, CpuOptions, bf16};
use engine::live::weights::Weights;
use engine::live::weights::folder::ModelFolder;
use engine::live::weights::tensor::Tensor;
use engine::live::{LiveConfig, LiveExits};
use engine::models::gate::GateSpec;
use engine::request::RequestId;
use engine::submission::{Sampling, Submission};
use engine::units::Depth;
use serde_json::json;
use serve::engine_thread;
use serve::http::{Guard, Limits};
use serve::model::ServedModel;
use serve::settings::Settings;

use crate::client::{Answer, request};
use crate::server::{Server, folder};

/// An executor that has launched so many batches when it panics.
struct Panics {
    executor: CpuExecutor,
    left: u32,
}

impl Executor for Panics {
    type Error = <CpuExecutor as Executor>::Error;

    fn submit(&mut self, submission: &Submission) -> Result<(), Reject> {
        self.executor.submit(submission)
    }

    fn forget(&mut self, request: RequestId) {
        self.executor.forget(request);
    }

    fn launch(&mut self, batch: Batch, clock: &mut dyn Clock) -> Result<(), Self::Error> {
        assert!(self.left > 0, "a bug, for once on purpose");
        self.left -= 1;
        self.executor.launch(batch, clock)
    }

    fn wait(&mut self, clock: &mut dyn Clock) -> Result<Outcome, Self::Error> {
        self.executor.wait(clock)
    }
}

/// A server of changed weights, whose engine panics behind so many batches.
fn server(batches: u32, change: impl FnOnce(Weights) -> Weights + Send + 'static) -> Server {
    let model = ModelFolder::open(&folder()).unwrap();
    let (tokenizer, chat) = ServedModel::text(&folder(), model.architecture().vocab).unwrap();
    let vocab = model.architecture().vocab as u32;
    let engine = engine_thread::start(64, move || {
        let config = Settings::read(None)?.config(model.architecture(), Some(256), 512)?;
        let gate = GateSpec::at(1.0);
        let live = LiveConfig::new(config, LiveExits::Gate(gate));
        let weights = change(model.weights().unwrap());
        let options = CpuOptions { threads: 1, ..CpuOptions::default() };
        let executor = CpuExecutor::new(model.architecture(), &weights, live, options).unwrap();
        Ok((Panics { executor, left: batches }, config))
    });
    let engine = engine.unwrap();
    let model = ServedModel {
        name: "tiny".into(),
        tokenizer,
        chat,
        vocab,
        context_tokens: engine.config.max_context_tokens,
        end_tokens: [2].into(),
        sampling: Sampling::GREEDY,
        exit_threshold: 1.0,
        first_exit: Depth(1),
        full_depth_only: false,
    };
    Server::around(engine, model, Limits::default(), Guard::default())
}

#[test]
fn a_panic_ends_streams_with_an_error_and_the_server_with_one() {
    let server = server(40, |weights| weights);
    let client = server.client;
    let asks = |stream: bool| {
        let body = json!({ "prompt": "a", "max_tokens": 100, "ignore_eos": true, "stream": stream });
        std::thread::spawn(move || client.raw(&request("/v1/completions", body.to_string().as_bytes())))
    };
    let (streamed, whole) = (asks(true), asks(false));
    let (streamed, whole): (Answer, Answer) = (streamed.join().unwrap(), whole.join().unwrap());
    let text = streamed.text();
    let last = text.split_terminator("\n\n").last().unwrap().strip_prefix("data: ").unwrap();
    let error: serde_json::Value = serde_json::from_str(last).unwrap();
    assert_eq!(error["error"]["message"], "the engine panicked: a bug, for once on purpose", "{text}");
    assert_eq!((whole.status, whole.error().0.as_str()), (500, "the engine panicked: a bug, for once on purpose"));
    assert_eq!(server.ended(), Err("the engine panicked: a bug, for once on purpose".into()));
}

#[test]
fn logits_that_are_not_finite_fail_one_request_alone() {
    const BROKEN: u32 = 50;
    let server = server(u32::MAX, |weights| {
        let name = "model.embed_tokens.weight";
        let table = weights.tensor(name);
        let (rows, hidden) = (table.shape()[0], table.shape()[1]);
        let mut values = table.to_bf16().into_owned();
        values[BROKEN as usize * hidden..][..hidden].fill(bf16::from_f32(f32::NAN));
        let tensors = weights.iter().map(|(name, tensor)| (name.to_owned(), tensor.clone()));
        let tensors = tensors.chain([(name.to_owned(), Tensor::from_bf16(&[rows, hidden], values))]).collect();
        Weights::from_tensors(tensors, ModelFolder::open(&folder()).unwrap().architecture()).unwrap()
    });
    let client = server.client;
    let ask = |prompt: [u32; 3], stream: bool| {
        let body = json!({ "prompt": prompt, "max_tokens": 4, "ignore_eos": true, "stream": stream });
        client.raw(&request("/v1/completions", body.to_string().as_bytes()))
    };
    let healthy = ask([5, 6, 7], false);
    let answer = ask([5, BROKEN, 7], false);
    assert_eq!((answer.status, answer.error().0.contains("not finite")), (500, true));
    let answer = ask([5, BROKEN, 7], true);
    assert!(answer.status == 200 && answer.text().contains("not finite") && !answer.text().contains("[DONE]"));
    assert_eq!(ask([5, 6, 7], false).json()["choices"], healthy.json()["choices"]);
    assert_eq!(client.over("failed"), 2.0);
    assert_eq!(server.stop(), Ok(()));
}
