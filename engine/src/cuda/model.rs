//! A model's weights on the device, stacked as the kernels read them.

use std::rc::Rc;

use super::compile::kernel;
use super::device::{Device, Kernel, Shape, arguments};
use super::error::CudaError;
use super::memory::{Address, Buffer};
use super::options::WeightSource;
use crate::architecture::{Architecture, Family};
use crate::models::tensor_names::{Part, TensorSpec, huginn_block, optional, ouro_layer, required};
use crate::models::weights::name_hash;

/// A linear layer `[outputs, inputs]`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Linear {
    pub(super) weights: Address,
    pub(super) outputs: usize,
    pub(super) inputs: usize,
}

/// A transformer block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layer {
    /// Before and after attention, before and after the MLP.
    pub(super) norms: [Address; 4],
    pub(super) qkv: Linear,
    /// Huginn.
    pub(super) qk_bias: Address,
    pub(super) out: Linear,
    pub(super) gate_up: Linear,
    pub(super) down: Linear,
}

/// A model's weights on a device, shared by the executors that are made of it.
#[derive(Clone, Debug)]
pub struct CudaModel(pub(super) Rc<Model>);

impl CudaModel {
    /// Loads or makes the weights.
    ///
    /// # Errors
    /// They do not fit, or the kernel that makes them does not compile.
    pub fn new(device: &Device, architecture: &Architecture, source: WeightSource<'_>) -> Result<Self, CudaError> {
        Ok(Self(Rc::new(Model::new(device, architecture, source)?)))
    }

    /// The device that holds them.
    pub fn device(&self) -> &Device {
        &self.0.device
    }
}

/// All weights.
#[derive(Debug)]
pub(super) struct Model {
    pub(super) device: Device,
    pub(super) architecture: Architecture,
    pub(super) embedding: Address,
    pub(super) prelude: Vec<Layer>,
    pub(super) core: Vec<Layer>,
    pub(super) coda: Vec<Layer>,
    pub(super) adapter: Option<Linear>,
    pub(super) final_norm: Address,
    pub(super) head: Linear,
    /// Ouro: weights and bias of the released and of the lookahead gate; 0 where there is none.
    pub(super) gates: [(Address, Address); 2],
    pub(super) has_lookahead_gate: bool,
    #[cfg_attr(not(test), expect(dead_code, reason = "owned here, read by address"))]
    buffers: Vec<Buffer>,
}

/// Places tensors on the device.
struct Loader<'a> {
    device: &'a Device,
    fill: Kernel,
    source: WeightSource<'a>,
    specs: Vec<TensorSpec>,
    buffers: Vec<Buffer>,
}

impl Loader<'_> {
    /// Tensors one behind the other in one buffer.
    fn stack(&mut self, names: &[String]) -> Result<Address, CudaError> {
        let specs: Vec<TensorSpec> = names
            .iter()
            .map(|name| self.specs.iter().find(|spec| spec.name == *name).cloned().expect("a tensor of the model"))
            .collect();
        let numbers = |spec: &TensorSpec| spec.shape.iter().product::<usize>();
        let buffer = Buffer::new(self.device, specs.iter().map(numbers).sum::<usize>() * 2, &names[0])?;
        let mut offset = 0;
        for spec in &specs {
            match self.source {
                WeightSource::Loaded(weights) => {
                    buffer.write(self.device, offset, bytemuck::cast_slice(&weights.tensor(&spec.name).to_bf16()))?;
                }
                WeightSource::Random { seed } => {
                    let (to, stream, count) = (buffer.at(offset), name_hash(&spec.name), numbers(spec) as u64);
                    let (mean, scale) = (spec.fill.mean, spec.fill.std * 12f32.sqrt());
                    let shape = Shape { grid: (1024, 1), threads: 256, shared_bytes: 0, early: false };
                    self.device.launch(self.fill, shape, arguments![to, count, seed, stream, mean, scale])?;
                }
            }
            offset += numbers(spec) * 2;
        }
        let address = buffer.address();
        self.buffers.push(buffer);
        Ok(address)
    }

    fn one(&mut self, name: impl Into<String>) -> Result<Address, CudaError> {
        self.stack(&[name.into()])
    }
}

impl Model {
    fn new(device: &Device, architecture: &Architecture, source: WeightSource<'_>) -> Result<Self, CudaError> {
        let fill = kernel(device, architecture, "fill.cu", "fill_weights")?;
        let mut specs = required(architecture);
        specs.extend(optional(architecture));
        let mut loader = Loader { device, fill, source, specs, buffers: Vec::new() };
        let a = architecture;
        let hidden = a.hidden as usize;
        let layers = |loader: &mut Loader<'_>, part, count: u64| {
            (0..count as usize)
                .map(|i| match a.family {
                    Family::Ouro => ouro(loader, a, i),
                    Family::Huginn => huginn(loader, a, part, i),
                })
                .collect::<Result<Vec<_>, _>>()
        };
        let prelude = layers(&mut loader, Part::Prelude, a.prelude_layers)?;
        let core = layers(&mut loader, Part::Core, a.core_layers)?;
        let coda = layers(&mut loader, Part::Coda, a.coda_layers)?;
        let head = |weights| Linear { weights, outputs: a.vocab as usize, inputs: hidden };
        let mut gates = [(0, 0); 2];
        let (embedding, head, final_norm, adapter) = match a.family {
            Family::Ouro => {
                let names = ["model.early_exit_gate", "lookahead_gate"];
                for (gate, name) in gates.iter_mut().zip(names).take(1 + usize::from(source.has_lookahead_gate())) {
                    *gate = (loader.one(format!("{name}.weight"))?, loader.one(format!("{name}.bias"))?);
                }
                let embedding = loader.one("model.embed_tokens.weight")?;
                (embedding, head(loader.one("lm_head.weight")?), loader.one("model.norm.weight")?, None)
            }
            Family::Huginn => {
                let embedding = loader.one("transformer.wte.weight")?;
                let adapter =
                    Linear { weights: loader.one("transformer.adapter.weight")?, outputs: hidden, inputs: 2 * hidden };
                (embedding, head(embedding), loader.one("transformer.ln_f.weight")?, Some(adapter))
            }
        };
        device.synchronize()?;
        let buffers = loader.buffers;
        Ok(Self {
            device: device.clone(),
            architecture: a.clone(),
            embedding,
            prelude,
            core,
            coda,
            adapter,
            final_norm,
            head,
            gates,
            has_lookahead_gate: source.has_lookahead_gate(),
            buffers,
        })
    }
}

fn block(a: &Architecture, norms: [Address; 4], [qkv, qk_bias, out, gate_up, down]: [Address; 5]) -> Layer {
    let (hidden, ffn, attention) = (a.hidden as usize, a.ffn as usize, (a.heads * a.head_dim) as usize);
    let linear = |weights, outputs, inputs| Linear { weights, outputs, inputs };
    Layer {
        norms,
        qkv: linear(qkv, 3 * attention, hidden),
        qk_bias,
        out: linear(out, hidden, attention),
        gate_up: linear(gate_up, 2 * ffn, hidden),
        down: linear(down, hidden, ffn),
    }
}

fn ouro(loader: &mut Loader<'_>, a: &Architecture, layer: usize) -> Result<Layer, CudaError> {
    let name = |tensor: &str| ouro_layer(layer, tensor);
    let norms = [
        loader.one(name("input_layernorm"))?,
        loader.one(name("input_layernorm_2"))?,
        loader.one(name("post_attention_layernorm"))?,
        loader.one(name("post_attention_layernorm_2"))?,
    ];
    let weights = [
        loader.stack(&["q", "k", "v"].map(|p| name(&format!("self_attn.{p}_proj"))))?,
        0,
        loader.one(name("self_attn.o_proj"))?,
        loader.stack(&["gate", "up"].map(|p| name(&format!("mlp.{p}_proj"))))?,
        loader.one(name("mlp.down_proj"))?,
    ];
    Ok(block(a, norms, weights))
}

fn huginn(loader: &mut Loader<'_>, a: &Architecture, part: Part, layer: usize) -> Result<Layer, CudaError> {
    let name = |tensor: &str| huginn_block(part, layer, tensor);
    let norms = [
        loader.one(name("norm_1.weight"))?,
        loader.one(name("norm_2.weight"))?,
        loader.one(name("norm_3.weight"))?,
        loader.one(name("norm_4.weight"))?,
    ];
    let weights = [
        loader.one(name("attn.Wqkv.weight"))?,
        loader.one(name("attn.qk_bias"))?,
        loader.one(name("attn.proj.weight"))?,
        loader.one(name("mlp.fc.weight"))?,
        loader.one(name("mlp.proj.weight"))?,
    ];
    Ok(block(a, norms, weights))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::weights::Weights;

    #[test]
    #[ignore = "needs a CUDA device"]
    fn weights_made_on_the_device_are_the_hosts() {
        for name in ["tiny-ouro", "tiny-huginn"] {
            let architecture = Architecture::builtin(name).unwrap();
            let device = Device::open(0).unwrap();
            let host = Weights::random(&architecture, 9);
            let made = Model::new(&device, &architecture, WeightSource::Random { seed: 9 }).unwrap();
            let loaded = Model::new(&device, &architecture, WeightSource::Loaded(&host)).unwrap();
            assert_eq!(made.buffers.len(), loaded.buffers.len());
            for (made, loaded) in made.buffers.iter().zip(&loaded.buffers) {
                let bits = |buffer: &Buffer| buffer.read::<u16>(buffer.bytes() / 2).unwrap();
                assert!(bits(made) == bits(loaded), "{name}: a tensor differs");
            }
        }
    }
}
