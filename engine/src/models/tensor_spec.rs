//! One tensor of a model: its released name, its shape, and how a random model fills it.

use crate::architecture::Architecture;

/// One tensor that a model needs.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorSpec {
    /// The name in the released files.
    pub name: String,
    /// Dimensions, outermost first.
    pub shape: Vec<usize>,
    /// What a random model puts there.
    pub fill: Fill,
}

/// A uniform distribution for random weights; no number is zero, so that no term of a sum goes untested.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fill {
    /// Where it is centred.
    pub mean: f32,
    /// Its standard deviation.
    pub std: f32,
}

impl TensorSpec {
    /// A linear layer's weights, scaled so that its outputs are as large as its inputs.
    pub fn linear(name: String, outputs: usize, inputs: usize) -> Self {
        Self { name, shape: vec![outputs, inputs], fill: Fill { mean: 0.0, std: (inputs as f32).powf(-0.5) } }
    }

    /// A norm's weights: near one, but not one, so that a forgotten norm shows.
    pub fn norm(name: String, width: usize) -> Self {
        Self { name, shape: vec![width], fill: Fill { mean: 1.0, std: 0.15 } }
    }

    /// The norm of a branch's output: small against the residual stream, as in a trained model. With branches as large as
    /// the stream a random model is chaotic, and two roundings of it have nothing in common after a few loops.
    pub fn branch_norm(name: String, width: usize) -> Self {
        Self { name, shape: vec![width], fill: Fill { mean: 0.3, std: 0.05 } }
    }

    /// A branch's last layer where no norm follows it: small for the same reason.
    pub fn branch(name: String, outputs: usize, inputs: usize) -> Self {
        let linear = Self::linear(name, outputs, inputs);
        Self { fill: Fill { std: 0.3 * linear.fill.std, ..linear.fill }, ..linear }
    }

    /// An embedding of its own: rows of unit variance.
    pub fn embedding(name: String, vocab: usize, hidden: usize) -> Self {
        Self { name, shape: vec![vocab, hidden], fill: Fill { mean: 0.0, std: 1.0 } }
    }

    /// An exit gate. Hazards are around 0.3, so that random models leave at every depth.
    pub fn gate(name: &str, architecture: &Architecture) -> Vec<Self> {
        let bias = Fill { mean: -0.8, std: 0.01 };
        vec![
            Self::linear(format!("{name}.weight"), 1, architecture.hidden as usize),
            Self { name: format!("{name}.bias"), shape: vec![1], fill: bias },
        ]
    }
}
