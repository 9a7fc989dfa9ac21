//! The model that answers: a folder, its tokenizer, and executors of it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use engine::live::cpu::{CpuExecutor, CpuOptions};
use engine::live::cuda::{CudaDevice, CudaExecutor, CudaModel, CudaOptions, WeightSource};
use engine::live::weights::Weights;
use engine::live::weights::folder::ModelFolder;
use engine::live::{LiveConfig, LiveExits, TakenExits};
use engine::models::criterion::Criterion;
use text::{Chat, Message, Tokenizer};

use super::ask::{Answer, Asked, ask};
use super::condition::{Condition, GateKind};
use super::questions::Question;
use crate::live::LiveDevice;
use crate::run::key;

/// A model folder, ready to answer on a device.
pub struct Model {
    folder: ModelFolder,
    tokenizer: Arc<Tokenizer>,
    chat: Option<Chat>,
    end_tokens: Vec<u32>,
    weights: Weights,
    device: LiveDevice,
    threads: usize,
    gpu: Option<CudaDevice>,
    /// The last model on the GPU, and whether its lookahead gate was left out.
    placed: Option<(bool, CudaModel)>,
    /// What answered last there: its graphs take longer to record than a part takes to answer.
    last: Option<Box<CudaExecutor>>,
}

impl Model {
    /// Opens a folder. With `chat`, prompts are wrapped in its chat template.
    ///
    /// # Errors
    /// What is wrong with the folder, in a sentence.
    pub fn open(path: &Path, device: LiveDevice, threads: usize, chat: bool) -> Result<Self, String> {
        let folder = ModelFolder::open(path).map_err(|error| error.to_string())?;
        let weights = folder.weights().map_err(|error| error.to_string())?;
        weights.warnings().iter().for_each(|warning| eprintln!("{warning}"));
        let said = |error: text::TextError| error.to_string();
        let tokenizer = Arc::new(Tokenizer::open(path, folder.architecture().vocab).map_err(said)?);
        let chat = chat.then(|| Chat::new(tokenizer.clone())).transpose().map_err(said)?;
        let mut end_tokens = folder.config.end_tokens.clone();
        if end_tokens.is_empty() {
            end_tokens.extend(tokenizer.eos().map(|token| token.id));
        }
        if end_tokens.is_empty() {
            return Err(format!("{}: no end token is named, so no answer would end: set eos_token_id", path.display()));
        }
        Ok(Self { folder, tokenizer, chat, end_tokens, weights, device, threads, gpu: None, placed: None, last: None })
    }

    /// The folder.
    pub fn folder(&self) -> &ModelFolder {
        &self.folder
    }

    /// The gates that it can be asked with.
    pub fn gates(&self) -> Vec<GateKind> {
        if Criterion::of(self.folder.architecture()) != Criterion::Hazard {
            return Vec::new();
        }
        let trained = self.weights.has_lookahead_gate().then_some(GateKind::Lookahead);
        [GateKind::Released, GateKind::Delayed].into_iter().chain(trained).collect()
    }

    /// What the answers depend on besides questions and condition: the folder's files by name, size and time, the device, and
    /// whether there is a template, hashed.
    pub(super) fn key(&self) -> std::io::Result<String> {
        let mut files: Vec<(PathBuf, u64, u128)> = Vec::new();
        for entry in std::fs::read_dir(self.folder.path())? {
            let (entry, is_of_model) = entry.map(|entry| {
                let name = entry.file_name().to_string_lossy().into_owned();
                (entry, name.ends_with(".safetensors") || name.ends_with(".json"))
            })?;
            if is_of_model {
                let facts = entry.metadata()?;
                let changed = facts.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
                files.push((entry.file_name().into(), facts.len(), changed));
            }
        }
        files.sort();
        Ok(key::hash(&(files, self.device, self.chat.is_some())))
    }

    /// Token ids of a question and of its answer with an end token; none of an answer that is searched for a number.
    ///
    /// # Errors
    /// The tokenizer's or the template's.
    pub(super) fn encode(&self, question: &Question, max_tokens: u32) -> Result<Asked, String> {
        let said = |error: text::TextError| error.to_string();
        let prompt = match &self.chat {
            None => self.tokenizer.encode(&question.prompt, true).map_err(said)?,
            Some(chat) => {
                let message = serde_json::json!({ "role": "user", "content": question.prompt });
                let message: Message = serde_json::from_value(message).map_err(|error| error.to_string())?;
                chat.render(&[message], true).map_err(said)?
            }
        };
        let reference = match question.scorer {
            super::Scorer::LastNumber => Vec::new(),
            super::Scorer::Exact => {
                let mut ids = self.tokenizer.encode(&question.answer, false).map_err(said)?;
                ids.push(self.end_tokens[0]);
                ids
            }
        };
        Ok(Asked { prompt: prompt.into(), reference, max_tokens })
    }

    /// The text of an answer's ids.
    pub(super) fn decode(&self, ids: &[u32]) -> Result<String, String> {
        self.tokenizer.decode(ids, true).map_err(|error| error.to_string())
    }

    /// Answers questions under a condition, greedily, all of them together; also how many seconds that took.
    ///
    /// # Errors
    /// The condition does not suit the model, or the device failed.
    pub(super) fn answer(
        &mut self,
        condition: &Condition,
        context: u32,
        asked: &[Asked],
    ) -> Result<(Vec<Answer>, f64), String> {
        let at = |error: String| format!("{condition}: {error}");
        let architecture = self.folder.architecture().clone();
        let scheduler = condition.scheduler(&architecture, context)?;
        let exits = match condition.gate() {
            Some(gate) => LiveExits::Gate(gate),
            // Every request asks for full depth, so there is nothing to replay.
            None => LiveExits::Replay(Arc::new(TakenExits::default())),
        };
        let config = LiveConfig {
            end_tokens: self.end_tokens.clone(),
            initial_state: self.folder.config.initial_state,
            ..LiveConfig::new(scheduler, exits)
        };
        let full_depth = condition.gate().is_none();
        let without = condition.leaves_out_lookahead_gate();
        match self.device {
            LiveDevice::Cpu => {
                let reduced = without.then(|| self.weights.clone().without_lookahead_gate());
                let weights = reduced.as_ref().unwrap_or(&self.weights);
                let options = CpuOptions { threads: self.threads, copy_skipped_planes: false };
                let mut executor: CpuExecutor =
                    CpuExecutor::new(&architecture, weights, config, options).map_err(|error| at(error.to_string()))?;
                ask(&mut executor, full_depth, asked).map_err(at)
            }
            LiveDevice::Cuda => {
                self.place(without).map_err(|error| format!("--device cuda: {error}"))?;
                let (_, model) = self.placed.as_ref().expect("it was placed");
                let mut executor = CudaExecutor::renewed(self.last.take(), model, config, CudaOptions::default())
                    .map_err(|error| at(error.to_string()))?;
                let answers = ask(&mut *executor, full_depth, asked).map_err(at)?;
                self.last = Some(executor);
                Ok(answers)
            }
        }
    }

    /// Places the model on the GPU, once while its gates stay.
    fn place(&mut self, without: bool) -> Result<(), engine::live::cuda::CudaError> {
        if self.gpu.is_none() {
            self.gpu = Some(CudaDevice::open(0)?);
        }
        if self.placed.as_ref().is_none_or(|(left_out, _)| *left_out != without) {
            (self.placed, self.last) = (None, None);
            let weights = self.weights.clone();
            let weights = if without { weights.without_lookahead_gate() } else { weights };
            let gpu = self.gpu.as_ref().expect("it was opened");
            let model = CudaModel::new(gpu, self.folder.architecture(), WeightSource::Loaded(&weights))?;
            self.placed = Some((without, model));
        }
        Ok(())
    }
}
