//! Shapes of looped language models: what costs, footprints and bounds are computed from.
//!
//! Sources: the public code and weights of Ouro (Hugging Face revision 574fa66c) and Huginn-0125 (bb6621b6).

use serde::{Deserialize, Serialize};

use crate::layout::Layout;
use crate::models::family::{After, Form};
use crate::models::initial_state::HUGINN_STD;
use crate::models::rope::RopeScaling;
use crate::units::Depth;
use crate::whole;

pub use crate::models::family::Family;

/// Bytes of a bf16 number.
const BF16_BYTES: u64 = 2;

/// A prelude-core-coda transformer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Architecture {
    /// Name in tables.
    pub name: String,
    /// The family, which fixes norms, RoPE style, gate and adapter.
    pub family: Family,
    /// Vocabulary size.
    #[serde(deserialize_with = "whole::read")]
    pub vocab: u64,
    /// Width of the residual stream.
    #[serde(deserialize_with = "whole::read")]
    pub hidden: u64,
    /// Width of the gated MLP.
    #[serde(deserialize_with = "whole::read")]
    pub ffn: u64,
    /// Query heads.
    #[serde(deserialize_with = "whole::read")]
    pub heads: u64,
    /// KV heads, a divisor of the query heads; as many as these by default.
    #[serde(default, deserialize_with = "whole::read_optional", skip_serializing_if = "Option::is_none")]
    pub kv_heads: Option<u64>,
    /// Width of a head; `heads * head_dim` is the attention's width.
    #[serde(deserialize_with = "whole::read")]
    pub head_dim: u64,
    /// Layers before the loop.
    #[serde(deserialize_with = "whole::read")]
    pub prelude_layers: u64,
    /// Layers in the loop.
    #[serde(deserialize_with = "whole::read")]
    pub core_layers: u64,
    /// Layers behind the loop.
    #[serde(deserialize_with = "whole::read")]
    pub coda_layers: u64,
    /// Loops at full depth.
    pub r_max: Depth,
    /// The shallowest exit that the model's exit criterion can give under a lookahead of one loop.
    pub r_min: Depth,
    /// The base of RoPE's frequencies: pair i of a head turns by `theta^(-2 i / head_dim)` per position. The released
    /// model's by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rope_theta: Option<f64>,
    /// How RoPE's frequencies are changed for contexts longer than those of the first training; not at all by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rope_scaling: Option<RopeScaling>,
    /// Epsilon of every RMSNorm; 1e-6 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub norm_epsilon: Option<f64>,
    /// The LM head is the embedding; as in the released model by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tied_head: Option<bool>,
}

/// An architecture that no model can have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {reason}")]
pub struct ArchitectureError {
    /// Which field.
    pub field: &'static str,
    /// What it must be and what it is.
    pub reason: String,
}

impl Architecture {
    /// A width at most. With [`Self::LAYERS_MAX`] it keeps counts of parameters and of bytes far within 64 bits.
    pub const WIDTH_MAX: u64 = 1 << 20;

    /// Layers before, in or behind the loop at most.
    pub const LAYERS_MAX: u64 = 1000;

    /// Loops at most: depths are bytes, and one beyond full depth is looked ahead to.
    pub const LOOPS_MAX: u8 = u8::MAX - 1;

    /// The names that [`Self::builtin`] knows.
    pub const BUILTIN: [&'static str; 12] = [
        "ouro-1.4b",
        "ouro-2.6b",
        "huginn-3.5b",
        "nanbeige-3b",
        "recurrent-llama-3.2",
        "recurrent-tinyllama",
        "recurrent-olmo-2",
        "tiny-ouro",
        "tiny-huginn",
        "tiny-nanbeige",
        "tiny-recurrent-llama",
        "tiny-recurrent-olmo",
    ];

    /// A released model, or a tiny one with its structure for tests and live runs on a CPU.
    pub fn builtin(name: &str) -> Option<Self> {
        let ouro = |name: &str, core_layers| Self {
            name: name.into(),
            family: Family::OURO,
            vocab: 49_152,
            hidden: 2048,
            ffn: 5632,
            heads: 16,
            head_dim: 128,
            prelude_layers: 0,
            core_layers,
            coda_layers: 0,
            r_max: Depth(4),
            r_min: Depth(2),
            kv_heads: None,
            rope_theta: None,
            rope_scaling: None,
            norm_epsilon: None,
            tied_head: None,
        };
        let huginn = Self {
            name: "huginn-3.5b".into(),
            family: Family::HUGINN,
            vocab: 65_536,
            hidden: 5280,
            ffn: 17_920,
            heads: 55,
            head_dim: 96,
            prelude_layers: 2,
            core_layers: 4,
            coda_layers: 2,
            r_max: Depth(16),
            r_min: Depth(3),
            kv_heads: None,
            rope_theta: None,
            rope_scaling: None,
            norm_epsilon: None,
            tied_head: None,
        };
        let nanbeige = Self {
            name: name.into(),
            family: Family::NANBEIGE,
            vocab: 166_144,
            hidden: 3072,
            ffn: 10_752,
            heads: 48,
            kv_heads: Some(8),
            core_layers: 22,
            r_max: Depth(2),
            norm_epsilon: Some(1e-5),
            ..ouro(name, 22)
        };
        let llama_3_2 = RopeScaling::Llama3 {
            factor: 32.0,
            low_freq_factor: 1.0,
            high_freq_factor: 4.0,
            original_max_position_embeddings: 8192.0,
        };
        let llama = Self {
            name: name.into(),
            family: Family::RECURRENT_LLAMA,
            vocab: 128_256,
            hidden: 2048,
            ffn: 8192,
            heads: 32,
            kv_heads: Some(8),
            head_dim: 64,
            prelude_layers: 4,
            core_layers: 6,
            coda_layers: 4,
            r_max: Depth(32),
            rope_scaling: Some(llama_3_2),
            norm_epsilon: Some(1e-5),
            ..huginn.clone()
        };
        // Of TinyLlama's checkpoints the split is not known from a config; a folder's own decides.
        let tinyllama = Self {
            vocab: 32_000,
            ffn: 5632,
            kv_heads: Some(4),
            core_layers: 8,
            rope_theta: Some(1e4),
            rope_scaling: None,
            ..llama.clone()
        };
        let olmo = Self {
            family: Family::RECURRENT_OLMO,
            vocab: 100_352,
            heads: 16,
            kv_heads: None,
            head_dim: 128,
            rope_scaling: None,
            norm_epsilon: None,
            ..llama.clone()
        };
        // Small widths, and fewer KV heads where the released model shares them.
        let tiny = |model: &Self, kv_heads| Self {
            vocab: 512,
            hidden: 64,
            ffn: 176,
            heads: 4,
            kv_heads,
            head_dim: 16,
            prelude_layers: model.prelude_layers.min(1),
            core_layers: 2,
            coda_layers: model.coda_layers.min(1),
            r_max: model.r_max.min(Depth(8)),
            ..model.clone()
        };
        match name {
            "ouro-1.4b" => Some(ouro(name, 24)),
            "ouro-2.6b" => Some(ouro(name, 48)),
            "huginn-3.5b" => Some(huginn),
            "nanbeige-3b" => Some(nanbeige),
            "recurrent-llama-3.2" => Some(llama),
            "recurrent-tinyllama" => Some(tinyllama),
            "recurrent-olmo-2" => Some(olmo),
            "tiny-ouro" => Some(Self { vocab: 512, hidden: 64, ffn: 176, heads: 4, head_dim: 16, ..ouro(name, 3) }),
            "tiny-nanbeige" => Some(tiny(&nanbeige, Some(2))),
            "tiny-recurrent-llama" => Some(tiny(&llama, Some(2))),
            "tiny-recurrent-olmo" => Some(tiny(&olmo, None)),
            "tiny-huginn" => Some(Self {
                name: name.into(),
                vocab: 512,
                hidden: 72,
                ffn: 240,
                heads: 3,
                head_dim: 24,
                prelude_layers: 1,
                core_layers: 2,
                coda_layers: 1,
                r_max: Depth(8),
                ..huginn
            }),
            _ => None,
        }
    }

    /// The built-in model of the same layers, which takes the same time a loop whatever its loops and numbers are.
    pub fn released(&self) -> Option<Self> {
        let layers = |model: &Self| {
            let outside = (model.vocab, model.prelude_layers, model.coda_layers);
            let block = (model.hidden, model.ffn, model.heads, model.kv_heads(), model.head_dim);
            (model.family, outside, model.core_layers, block)
        };
        Self::BUILTIN.into_iter().filter_map(Self::builtin).find(|model| layers(model) == layers(self))
    }

    /// Checks that every size is one that a model can have.
    ///
    /// # Errors
    /// The first field that is zero where something is needed, or larger than any model's.
    pub fn check(&self) -> Result<(), ArchitectureError> {
        let within = |field, value: u64, least: u64, most: u64| match (least..=most).contains(&value) {
            true => Ok(()),
            false => {
                Err(ArchitectureError { field, reason: format!("must be between {least} and {most}, got {value}") })
            }
        };
        let widths = [
            ("vocab", self.vocab),
            ("hidden", self.hidden),
            ("ffn", self.ffn),
            ("heads", self.heads),
            ("head_dim", self.head_dim),
            ("kv_heads", self.kv_heads()),
        ];
        widths.into_iter().try_for_each(|(field, width)| within(field, width, 1, Self::WIDTH_MAX))?;
        let error = |field, reason| Err(ArchitectureError { field, reason });
        if !self.heads.is_multiple_of(self.kv_heads()) {
            let reason = format!("must divide heads = {}, got {}", self.heads, self.kv_heads());
            return error("kv_heads", reason);
        }
        if !(self.rope_theta() >= 1.0 && self.rope_theta().is_finite()) {
            return error("rope_theta", format!("must be a number of at least 1, got {}", self.rope_theta()));
        }
        if !(self.norm_epsilon() > 0.0 && self.norm_epsilon() < 1.0) {
            return error("norm_epsilon", format!("must lie between 0 and 1, got {}", self.norm_epsilon()));
        }
        if let Some(scaling) = &self.rope_scaling {
            scaling.check().map_err(|reason| ArchitectureError { field: "rope_scaling", reason })?;
        }
        let attention = self.query_width();
        if attention > Self::WIDTH_MAX {
            return error(
                "head_dim",
                format!("heads times head_dim must be at most {}, got {attention}", Self::WIDTH_MAX),
            );
        }
        within("prelude_layers", self.prelude_layers, 0, Self::LAYERS_MAX)?;
        within("core_layers", self.core_layers, 1, Self::LAYERS_MAX)?;
        within("coda_layers", self.coda_layers, 0, Self::LAYERS_MAX)?;
        within("r_max", self.r_max.0.into(), 1, Self::LOOPS_MAX.into())?;
        within("r_min", self.r_min.0.into(), 1, self.r_max.0.into())
    }

    /// KV heads.
    pub fn kv_heads(&self) -> u64 {
        self.kv_heads.unwrap_or(self.heads)
    }

    /// See the field.
    pub fn rope_theta(&self) -> f64 {
        self.rope_theta.unwrap_or_else(|| self.form().rope_theta)
    }

    /// See the field.
    pub fn norm_epsilon(&self) -> f32 {
        self.norm_epsilon.unwrap_or(1e-6) as f32
    }

    /// See the field.
    pub fn tied_head(&self) -> bool {
        self.tied_head.unwrap_or_else(|| self.form().tied_head)
    }

    /// What distinguishes its family's arithmetic.
    pub fn form(&self) -> Form {
        self.family.form
    }

    /// The standard deviation of the noise from which a loop may start, before it is cut.
    pub fn noise_std(&self) -> f32 {
        match self.form().scales_embedding {
            true => HUGINN_STD,
            false => HUGINN_STD / (self.hidden as f32).sqrt(),
        }
    }

    /// Width of all queries.
    pub fn query_width(&self) -> u64 {
        self.heads * self.head_dim
    }

    /// Width of all keys, and of all values.
    pub fn kv_width(&self) -> u64 {
        self.kv_heads() * self.head_dim
    }

    /// Parameters of one layer: four projections of attention, a gated MLP, and the family's norms and biases.
    pub fn layer_params(&self) -> u64 {
        let (queries, kv) = (self.query_width(), self.kv_width());
        let form = self.form();
        let norms = 2 * u64::from(form.norms.before) + 2 * u64::from(form.norms.after != After::Nothing);
        let of_heads = (u64::from(form.qk_bias) + u64::from(form.qk_norm)) * (queries + kv);
        2 * self.hidden * (queries + kv) + 3 * self.hidden * self.ffn + norms * self.hidden + of_heads
    }

    /// Parameters of one core application, Huginn's adapter included: F_r of the paper's Section 5, in FLOP / 2.
    pub fn core_params(&self) -> u64 {
        self.core_layers * self.layer_params() + self.adapter_params()
    }

    /// Parameters outside the loop that a decoded token passes, final norm and LM head included: F_0, in FLOP / 2.
    ///
    /// The embedding is a lookup and counts nothing. Ouro's final norm runs every loop, but the paper counts it here.
    pub fn boundary_params(&self) -> u64 {
        (self.prelude_layers + self.coda_layers) * self.layer_params() + self.hidden + self.vocab * self.hidden
    }

    /// Parameters of the prelude alone (what `boundary_params` counts of it).
    pub fn prelude_params(&self) -> u64 {
        self.prelude_layers * self.layer_params()
    }

    /// Bytes of KV that the core's layers keep per token and plane, in bf16.
    pub fn core_kv_bytes(&self) -> u64 {
        self.core_layers * self.layer_kv_bytes()
    }

    /// True if attention layers lie outside the loop.
    pub fn has_boundary_layers(&self) -> bool {
        self.prelude_layers + self.coda_layers > 0
    }

    /// Bytes of KV that the prelude's and coda's layers keep per token, in bf16.
    pub fn boundary_kv_bytes(&self) -> u64 {
        (self.prelude_layers + self.coda_layers) * self.layer_kv_bytes()
    }

    /// Bytes of KV per token under a layout, in bf16: the paper's Table 4. No slot is dead.
    pub fn kv_bytes_per_token(&self, layout: Layout) -> u64 {
        u64::from(layout.planes(self.r_max)) * self.core_kv_bytes() + self.boundary_kv_bytes()
    }

    /// Bytes of KV per token of one layer, in bf16.
    pub fn layer_kv_bytes(&self) -> u64 {
        2 * self.kv_width() * BF16_BYTES
    }

    fn adapter_params(&self) -> u64 {
        if self.form().injects() { 2 * self.hidden * self.hidden } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn builtin(name: &str) -> Architecture {
        Architecture::builtin(name).unwrap_or_else(|| panic!("{name} is missing"))
    }

    #[test]
    fn parameters_are_the_released_ones() {
        let check = |name, core, boundary| {
            let model = builtin(name);
            assert_eq!((model.core_params(), model.boundary_params()), (core, boundary), "{name}");
        };
        check("ouro-1.4b", 1_233_321_984, 100_665_344);
        check("ouro-2.6b", 2_466_643_968, 100_665_344);
        check("huginn-3.5b", 1_637_349_120, 1_927_627_680);
    }

    #[test]
    fn the_largest_sizes_do_not_overflow_and_larger_ones_are_named() {
        let (width, layers) = (Architecture::WIDTH_MAX, Architecture::LAYERS_MAX);
        let largest = Architecture {
            vocab: width,
            hidden: width,
            ffn: width,
            heads: 1 << 10,
            head_dim: 1 << 10,
            prelude_layers: layers,
            core_layers: layers,
            coda_layers: layers,
            r_max: Depth(Architecture::LOOPS_MAX),
            ..builtin("huginn-3.5b")
        };
        assert_eq!(largest.check(), Ok(()));
        assert!(largest.boundary_params() + largest.core_params() < 1 << 55, "{}", largest.boundary_params());
        assert!(largest.kv_bytes_per_token(Layout::DepthIndexed) < 1 << 42);
        let check = |model: Architecture, field| assert_eq!(model.check().map_err(|error| error.field), Err(field));
        check(Architecture { head_dim: width, ..largest.clone() }, "head_dim");
        check(Architecture { r_min: Depth(17), ..builtin("huginn-3.5b") }, "r_min");
        for name in Architecture::BUILTIN {
            assert_eq!(builtin(name).check(), Ok(()), "{name}");
        }
    }

    #[test]
    fn footprints_are_table_4() {
        let check =
            |name, layout, bytes| assert_eq!(builtin(name).kv_bytes_per_token(layout), bytes, "{name} {layout}");
        check("ouro-1.4b", Layout::DepthIndexed, 786_432);
        check("ouro-1.4b", Layout::LastExited, 786_432);
        check("ouro-1.4b", Layout::Shared, 196_608);
        check("ouro-1.4b", Layout::FirstThenShared, 393_216);
        check("huginn-3.5b", Layout::DepthIndexed, 1_436_160);
        check("huginn-3.5b", Layout::Shared, 168_960);
        check("huginn-3.5b", Layout::FirstThenShared, 253_440);
    }
}
