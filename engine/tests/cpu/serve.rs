//! Serving a small workload with the real scheduler on the CPU.

use std::ops::ControlFlow;
use std::sync::Arc;

use engine::batch::Batch;
use engine::event_loop::{Observer, Refused, Step};
use engine::live::cpu::{CpuError, CpuExecutor, CpuOptions, Element, bf16};
use engine::live::{LiveExits, Transcripts};
use engine::request::{Arrival, RequestId};
use engine::submission::Submission;
use engine::units::Nanos;

pub(crate) use crate::harness::{EOS_MARGIN, MODELS, OVERLAPS, Run, Scattered, early, model};
use crate::harness::{assert_same, decoded_depths};

/// Of the other families; what does not depend on a block is tested with the two above.
pub(crate) const OTHERS: [&str; 3] = ["tiny-nanbeige", "tiny-recurrent-llama", "tiny-recurrent-olmo"];

/// What a run gave.
pub(crate) struct Served {
    pub(crate) transcripts: Transcripts,
    pub(crate) batches: Vec<Batch>,
    pub(crate) preemptions: u64,
    pub(crate) label: &'static str,
}

impl Run {
    pub(crate) fn serve(&self) -> Served {
        self.serve_in::<bf16>()
    }

    /// With weights, KV and activations stored as `E`.
    pub(crate) fn serve_in<E: Element>(&self) -> Served {
        self.try_serve::<E>().unwrap_or_else(|error| panic!("{error}"))
    }

    pub(crate) fn try_serve<E: Element>(&self) -> Result<Served, CpuError> {
        let options = CpuOptions { threads: 1, ..CpuOptions::default() };
        let mut executor = CpuExecutor::<E>::new(&model(self.model), &self.weights, self.live(), options)?;
        let mut log = Log::default();
        let preemptions = self.serve_on(&mut executor, Submission::from, &mut log)?;
        let (transcripts, label) = (executor.transcripts().clone(), executor.exit_label());
        Ok(Served { transcripts, batches: log.0, preemptions, label })
    }
}

impl Served {
    pub(crate) fn output(&self, request: usize) -> &[u32] {
        &self.transcripts.get(RequestId(request as u32)).output
    }

    pub(crate) fn decoded_depths(&self) -> Vec<u8> {
        decoded_depths(&self.transcripts)
    }

    /// Panics unless tokens and exit depths are the same, request by request.
    pub(crate) fn assert_equals(&self, other: &Self, what: &str) {
        assert_same(&self.transcripts, &other.transcripts, what);
    }

    /// Requests whose tokens differ.
    pub(crate) fn differing(&self, other: &Self) -> Vec<usize> {
        let requests = 0..self.transcripts.iter().count();
        requests.filter(|&request| self.output(request) != other.output(request)).collect()
    }
}

/// Keeps the batches, without what is known only afterwards.
#[derive(Default)]
pub(crate) struct Log(Vec<Batch>);

impl Observer for Log {
    fn arrived(&mut self, _: &Arrival, _: Nanos, refused: Option<&Refused>) {
        assert!(refused.is_none(), "{refused:?}");
    }

    fn step(&mut self, step: &Step) -> ControlFlow<()> {
        self.0.push(step.outcome.batch.clone());
        ControlFlow::Continue(())
    }
}

pub(crate) fn full_depth(model_name: &str) -> LiveExits {
    let r_max = model(model_name).r_max.0;
    LiveExits::Replay(Arc::new(Scattered { r_min: r_max, r_max }))
}
