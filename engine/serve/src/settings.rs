//! What a server runs with: the `scheduler`, `kv` and `exits` sections of a scenario and its first scheduler, each field
//! that is not there as suits a server.

use std::path::Path;

use engine::architecture::Architecture;
use engine::layout::Layout;
use engine::metrics::Slo;
use engine::models::gate::GateSpec;
use engine::scheduler::{Mode, Overlap, Pressure, SchedulerConfig};
use engine::whole::Whole;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use sim::run::plan::Plan;
use sim::scenario::model::ModelChoice;
use sim::scenario::numbers::Count;
use sim::scenario::{
    FinishSettings, KvSettings, LiveSettings, ModeName, OutputSettings, ProfileChoice, Scenario, SchedulerEntry,
    SchedulerSettings,
};
use traces::numbers::TokenCount;
use traces::{ArrivalsConfig, ExitsConfig, LengthsConfig, WorkloadConfig};

/// Prompt and output together, where neither a file nor the model says.
const CONTEXT_TOKENS: u64 = 16_384;

/// Prompt and output of an ordinary chat together, for which a pool without a size has room in every slot.
const CHAT_TOKENS: u64 = 1024;

/// A server's settings, before the model is known.
#[derive(Clone, Debug)]
pub struct Settings {
    scheduler: SchedulerSettings,
    kv: KvSettings,
    gate: Option<GateSpec>,
    entry: SchedulerEntry,
    context_is_given: bool,
    blocks_are_given: bool,
}

/// Settings that the command line says, in place of the file's.
#[derive(Clone, Copy, Debug, Default)]
pub struct ExitChoice {
    /// The gate's threshold.
    pub threshold: Option<f32>,
    /// The first loop at which a token may leave.
    pub min_depth: Option<u8>,
}

impl Settings {
    /// Reads a scenario's sections; without a file, a server's own settings.
    ///
    /// # Errors
    /// The file cannot be read, is not YAML, or a field does not fit; the file and the field are named.
    pub fn read(path: Option<&Path>) -> Result<Self, String> {
        let Some(path) = path else { return Self::of(&Map::new()) };
        let at = |error: String| format!("{}: {error}", path.display());
        let text = std::fs::read_to_string(path).map_err(|error| at(error.to_string()))?;
        let sections = sim::scenario::load::parse(&text).map_err(|error| at(error.to_string()))?;
        Self::of(&sections).map_err(at)
    }

    fn of(sections: &Map<String, Value>) -> Result<Self, String> {
        let has =
            |section: &str, field: &str| sections.get(section).is_some_and(|section| section.get(field).is_some());
        let scheduler = SchedulerSettings { overlap: Overlap::Asynchronous, ..SchedulerSettings::default() };
        let kv = KvSettings { layout: Layout::LastExited, pressure: Pressure::Recompute, ..KvSettings::default() };
        let first = sections.get("compare").and_then(|entries| entries.get(0)).cloned();
        let exits = sections.get("exits").cloned();
        let gate = match exits.map(|exits| typed::<ExitsConfig>("exits", exits)).transpose()? {
            None | Some(ExitsConfig::FullDepth) => None,
            Some(ExitsConfig::Gate(gate)) => Some(gate),
            Some(_) => {
                return Err("exits: a server's tokens leave by the model's own gate or another criterion: write \
                            `exits: { gate: { threshold: 0.5 } }` or `exits: full_depth`"
                    .into());
            }
        };
        Ok(Self {
            scheduler: overlaid("scheduler", &scheduler, sections.get("scheduler"))?,
            kv: overlaid("kv", &kv, sections.get("kv"))?,
            gate,
            entry: first.map_or(Ok(SchedulerEntry::of(ModeName::Refill)), |entry| typed("compare.0", entry))?,
            context_is_given: has("scheduler", "max_context_tokens"),
            blocks_are_given: has("kv", "blocks"),
        })
    }

    /// The gate that decides where a request does not say, for a model that suggests a threshold.
    pub fn gate(&self, suggested: f32, choice: ExitChoice) -> GateSpec {
        let lookahead = self.scheduler.overlap == Overlap::Lookahead;
        let gate = self.gate.unwrap_or(GateSpec { lookahead, ..GateSpec::at(suggested) });
        GateSpec {
            threshold: choice.threshold.or(gate.threshold),
            min_depth: choice.min_depth.map(engine::units::Depth).or(gate.min_depth),
            ..gate
        }
    }

    /// What the gate's criterion keeps of all sequences between two loops.
    pub fn kept_bytes(&self, architecture: &Architecture, gate: GateSpec) -> u64 {
        let each = gate.criterion(architecture).map_or(0, |criterion| criterion.kept_bytes(architecture));
        each * u64::from(self.scheduler.max_num_seqs.0)
    }

    /// No token can leave early.
    pub fn full_depth_only(&self) -> bool {
        self.entry.mode == ModeName::ContinuousBatching
            || self.entry.full_depth
            || self.kv.layout == Layout::DepthIndexed
    }

    /// The KV blocks that a file gives.
    pub fn given_blocks(&self) -> Option<u32> {
        self.blocks_are_given.then_some(self.kv.blocks.0)
    }

    /// Where the KV of each loop is kept, and the tokens of a block.
    pub fn kv_shape(&self) -> (Layout, u32) {
        (self.kv.layout, self.kv.block_tokens.0)
    }

    /// An exited token's KV is copied into the planes that it skipped.
    pub fn plane_copies(&self) -> bool {
        self.kv.plane_copies
    }

    /// Blocks that suffice where nobody says how many: for one request of the whole context, or W of `CHAT_TOKENS`.
    pub fn wished_blocks(&self, architecture: &Architecture, context: Option<u64>) -> u64 {
        let planes = u64::from(self.kv.layout.planes(architecture.r_max));
        let together = CHAT_TOKENS * u64::from(self.scheduler.max_num_seqs.0);
        self.context(context).max(together).div_ceil(self.kv.block_tokens.0.into()) * planes
    }

    /// What the scheduler is told, for a model that was made for `context` positions, with so many blocks. The context is
    /// no longer than the pool.
    ///
    /// # Errors
    /// The settings contradict each other, or the model.
    pub fn config(
        &self,
        architecture: &Architecture,
        context: Option<u64>,
        blocks: u32,
    ) -> Result<SchedulerConfig, String> {
        let mut scenario = self.scenario(architecture.clone(), context, blocks)?;
        // The gate decides; to a plan it is a live run's.
        scenario.exits = match self.full_depth_only() {
            true => ExitsConfig::FullDepth,
            false => ExitsConfig::Gate(self.gate(1.0, ExitChoice::default())),
        };
        let plan = Plan::for_live(scenario, None).map_err(|error| error.to_string())?;
        Ok(plan.schedulers[0].config)
    }

    /// The server as a scenario of the simulator's, at full depth, all requests alike and at once.
    ///
    /// # Errors
    /// The pool holds no token of every plane.
    pub fn scenario(&self, architecture: Architecture, context: Option<u64>, blocks: u32) -> Result<Scenario, String> {
        let planes = u64::from(self.kv.layout.planes(architecture.r_max));
        let room = u64::from(blocks) / planes * u64::from(self.kv.block_tokens.0);
        let context = self.context(context).min(room);
        if context < 2 {
            return Err(format!("kv.blocks: {blocks} blocks hold no prompt and answer in {planes} planes: raise it"));
        }
        let context = u32::try_from(context).unwrap_or(u32::MAX);
        let prompt_tokens = (context / 2).clamp(1, 512);
        let output_tokens = (context - prompt_tokens).clamp(1, 128);
        let tokens = |count: u32| TokenCount::try_from(Whole(count.into())).map_err(|error| error.to_string());
        let requests = self.scheduler.max_num_seqs.0.saturating_mul(4);
        Ok(Scenario {
            model: ModelChoice::Custom(architecture),
            profile: ProfileChoice::Roofline {
                gpu: "h200".into(),
                bandwidth_share: Default::default(),
                compute_share: Default::default(),
            },
            variant: None,
            workload: WorkloadConfig {
                lengths: Some(LengthsConfig::Fixed {
                    prompt_tokens: tokens(prompt_tokens)?,
                    output_tokens: tokens(output_tokens)?,
                }),
                file: None,
                scheduler: None,
                requests: Some(
                    Whole(requests.into()).try_into().map_err(|error: traces::TracesError| error.to_string())?,
                ),
                arrivals: ArrivalsConfig::Offline,
                max_total_tokens: tokens(context)?,
                shared_prefixes: None,
            },
            exits: ExitsConfig::FullDepth,
            scheduler: SchedulerSettings {
                max_context_tokens: Count(context),
                finish: FinishSettings::Eos { max_output_tokens: Count(output_tokens) },
                ..self.scheduler.clone()
            },
            kv: KvSettings { blocks: Count(blocks), ..self.kv.clone() },
            compare: vec![self.entry.clone()],
            replicas: None,
            seed: 0,
            repeats: Count(1),
            slo: None::<Slo>,
            output: OutputSettings { floor: false, ..OutputSettings::default() },
            live: LiveSettings::default(),
            sweep: None,
        })
    }

    /// The context that is asked for: the file's, else the model's.
    fn context(&self, model: Option<u64>) -> u64 {
        let given = u64::from(self.scheduler.max_context_tokens.0);
        if self.context_is_given { given } else { model.unwrap_or(CONTEXT_TOKENS) }
    }
}

/// A section with the defaults for what it does not say.
fn overlaid<T: Serialize + DeserializeOwned>(section: &str, default: &T, given: Option<&Value>) -> Result<T, String> {
    let mut value = json!(default);
    match (value.as_object_mut(), given) {
        (Some(fields), Some(Value::Object(given))) => {
            fields.extend(given.iter().map(|(name, value)| (name.clone(), value.clone())));
        }
        (_, None | Some(Value::Null)) => {}
        (_, Some(other)) => return Err(format!("{section}: it is a section with fields, got {other}")),
    }
    typed(section, value)
}

fn typed<T: DeserializeOwned>(section: &str, value: Value) -> Result<T, String> {
    serde_path_to_error::deserialize(value).map_err(|error| match error.path().to_string().as_str() {
        "." => format!("{section}: {}", error.inner()),
        path => format!("{section}.{path}: {}", error.inner()),
    })
}

/// Which batches a configuration forms, in words.
pub fn mode_name(config: &SchedulerConfig) -> String {
    match config.mode {
        Mode::Refill { min_coda_batch } => format!("refill K={min_coda_batch}"),
        mode => mode.name().replace('_', " "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tiny() -> Architecture {
        Architecture::builtin("tiny-ouro").unwrap()
    }

    fn read(yaml: &str) -> Result<Settings, String> {
        Settings::of(&sim::scenario::load::parse(yaml).unwrap())
    }

    #[test]
    fn a_file_changes_what_it_says_and_nothing_else() {
        let plain = Settings::read(None).unwrap().config(&tiny(), Some(4096), 4 * 256 * 64).unwrap();
        assert_eq!((plain.max_num_seqs, plain.max_context_tokens), (64, 4096));
        assert_eq!((plain.kv.layout, plain.kv.pressure), (Layout::LastExited, Pressure::Recompute));
        let given = read(
            "model: huginn-3.5b\nworkload: whatever\nscheduler: { max_num_seqs: 8, max_context_tokens: 1e3 }\n\
             kv: { block_tokens: 4 }\ncompare: [{ mode: no_refill }, { mode: refill }]",
        );
        let given = given.unwrap().config(&tiny(), Some(4096), 4096).unwrap();
        assert_eq!((given.max_num_seqs, given.max_context_tokens, given.kv.block_tokens), (8, 1000, 4));
        assert_eq!((given.kv.layout, given.mode), (Layout::LastExited, Mode::NoRefill));
    }

    #[test]
    fn the_context_is_no_longer_than_the_pool() {
        let config = Settings::read(None).unwrap().config(&tiny(), Some(65_536), 4 * 10).unwrap();
        assert_eq!(config.max_context_tokens, 160);
        let error = Settings::read(None).unwrap().config(&tiny(), None, 3).unwrap_err();
        assert!(error.starts_with("kv.blocks: 3 blocks hold no prompt"), "{error}");
    }

    #[test]
    fn what_a_server_cannot_do_names_its_field() {
        for (yaml, expected) in [
            ("exits: { preset: { name: ouro-q0.2 } }", "exits: a server's tokens leave by the model's own gate"),
            ("scheduler: { max_num_seqs: 0 }", "scheduler.max_num_seqs: must be a whole number from 1"),
            ("scheduler: { windows: 1 }", "scheduler.windows: unknown field"),
            ("kv: 7", "kv: it is a section with fields, got 7"),
            ("compare: [{ mode: fast }]", "compare.0.mode: unknown variant"),
        ] {
            let error = read(yaml).unwrap_err();
            assert!(error.starts_with(expected), "{yaml}: {error}");
        }
    }
}
