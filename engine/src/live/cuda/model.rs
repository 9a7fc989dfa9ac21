//! A model's weights on the device, stacked as the kernels read them.

use std::rc::Rc;

use super::compile::kernel;
use super::device::{CudaDevice, Kernel, Shape, arguments};
use super::error::CudaError;
use super::memory::{Address, Buffer};
use super::options::WeightSource;
use crate::architecture::Architecture;
use crate::live::weights::name_hash;
use crate::models::family::{self, LOOKAHEAD_GATE, LayerNames};
use crate::models::tensor_spec::TensorSpec;

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
    /// Before and after attention, before and after the MLP; 0 where there is none.
    pub(super) norms: [Address; 4],
    pub(super) qkv: Linear,
    /// Added to queries and keys, or 0.
    pub(super) qk_bias: Address,
    /// Norms of all queries and of all keys.
    pub(super) qk_norm: Option<[Address; 2]>,
    pub(super) out: Linear,
    pub(super) gate_up: Linear,
    pub(super) down: Linear,
}

/// A model's weights on a device, shared by the executors that are made of it.
#[derive(Clone, Debug)]
pub struct CudaModel(pub(super) Rc<DeviceModel>);

impl CudaModel {
    /// Loads or makes the weights.
    ///
    /// # Errors
    /// They do not fit, or the kernel that makes them does not compile.
    pub fn new(device: &CudaDevice, architecture: &Architecture, source: WeightSource<'_>) -> Result<Self, CudaError> {
        Ok(Self(Rc::new(DeviceModel::new(device, architecture, source)?)))
    }

    /// The device that holds them.
    pub fn device(&self) -> &CudaDevice {
        &self.0.device
    }
}

/// All weights.
#[derive(Debug)]
pub(super) struct DeviceModel {
    pub(super) device: CudaDevice,
    pub(super) architecture: Architecture,
    pub(super) embedding: Address,
    pub(super) prelude: Vec<Layer>,
    pub(super) core: Vec<Layer>,
    pub(super) coda: Vec<Layer>,
    pub(super) adapter: Option<Linear>,
    pub(super) final_norm: Address,
    pub(super) head: Linear,
    /// Weights and bias of the released and of the lookahead gate; 0 where there is none.
    pub(super) gates: [(Address, Address); 2],
    pub(super) has_lookahead_gate: bool,
    #[cfg_attr(not(test), expect(dead_code, reason = "owned here, read by address"))]
    buffers: Vec<Buffer>,
}

/// Places tensors on the device.
struct Loader<'a> {
    device: &'a CudaDevice,
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

impl DeviceModel {
    fn new(device: &CudaDevice, architecture: &Architecture, source: WeightSource<'_>) -> Result<Self, CudaError> {
        let fill = kernel(device, architecture, "fill.cu", "fill_weights")?;
        let mut specs = family::required(architecture);
        specs.extend(family::optional(architecture));
        let mut loader = Loader { device, fill, source, specs, buffers: Vec::new() };
        let (a, names) = (architecture, (architecture.family.tensors)(architecture));
        let hidden = a.hidden as usize;
        let mut layers = |names: &[LayerNames]| {
            names.iter().map(|names| layer(&mut loader, a, names)).collect::<Result<Vec<_>, _>>()
        };
        let (prelude, core, coda) = (layers(&names.prelude)?, layers(&names.core)?, layers(&names.coda)?);
        let mut gates = [(0, 0); 2];
        let lookahead = source.has_lookahead_gate().then_some(LOOKAHEAD_GATE);
        for (gate, name) in gates.iter_mut().zip([names.gate.as_deref(), lookahead]) {
            if let Some(name) = name {
                *gate = (loader.one(format!("{name}.weight"))?, loader.one(format!("{name}.bias"))?);
            }
        }
        let embedding = loader.one(names.embedding.as_str())?;
        let head = if names.head == names.embedding { embedding } else { loader.one(names.head.as_str())? };
        let head = Linear { weights: head, outputs: a.vocab as usize, inputs: hidden };
        let adapter = match names.adapter {
            Some(name) => Some(Linear { weights: loader.one(name)?, outputs: hidden, inputs: 2 * hidden }),
            None => None,
        };
        let final_norm = loader.one(names.final_norm)?;
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

fn layer(loader: &mut Loader<'_>, a: &Architecture, names: &LayerNames) -> Result<Layer, CudaError> {
    let (hidden, ffn) = (a.hidden as usize, a.ffn as usize);
    let (queries, kv) = (a.query_width() as usize, a.kv_width() as usize);
    let linear = |weights, outputs, inputs| Linear { weights, outputs, inputs };
    let mut norms = [0; 4];
    for (norm, name) in norms.iter_mut().zip(&names.norms) {
        if let Some(name) = name {
            *norm = loader.one(name.as_str())?;
        }
    }
    Ok(Layer {
        norms,
        qkv: linear(loader.stack(&names.qkv)?, queries + 2 * kv, hidden),
        qk_bias: names.qk_bias.as_ref().map_or(Ok(0), |name| loader.one(name.as_str()))?,
        qk_norm: match &names.qk_norm {
            Some([queries, keys]) => Some([loader.one(queries.as_str())?, loader.one(keys.as_str())?]),
            None => None,
        },
        out: linear(loader.one(names.out.as_str())?, hidden, queries),
        gate_up: linear(loader.stack(&names.gate_up)?, 2 * ffn, hidden),
        down: linear(loader.one(names.down.as_str())?, hidden, ffn),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::weights::Weights;

    #[test]
    #[ignore = "needs a CUDA device"]
    fn weights_made_on_the_device_are_the_hosts() {
        for name in ["tiny-ouro", "tiny-huginn"] {
            let architecture = Architecture::builtin(name).unwrap();
            let device = CudaDevice::open(0).unwrap();
            let host = Weights::random(&architecture, 9);
            let made = DeviceModel::new(&device, &architecture, WeightSource::Random { seed: 9 }).unwrap();
            let loaded = DeviceModel::new(&device, &architecture, WeightSource::Loaded(&host)).unwrap();
            assert_eq!(made.buffers.len(), loaded.buffers.len());
            for (made, loaded) in made.buffers.iter().zip(&loaded.buffers) {
                let bits = |buffer: &Buffer| buffer.read::<u16>(buffer.bytes() / 2).unwrap();
                assert!(bits(made) == bits(loaded), "{name}: a tensor differs");
            }
        }
    }
}
