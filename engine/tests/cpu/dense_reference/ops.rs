//! The arithmetic: one vector at a time, in f64.

use engine::architecture::Family;

use super::{DenseModel, Vector};

impl DenseModel {
    /// The released gate's hazard after a loop.
    pub(crate) fn hazard(&self, gate: &str, state: &[f64]) -> f64 {
        let weight = self.tensor(&format!("{gate}.weight"));
        let bias = self.tensor(&format!("{gate}.bias"))[0];
        sigmoid(weight.iter().zip(state).map(|(w, x)| w * x).sum::<f64>() + bias)
    }

    pub(super) fn rotate(&self, position: usize, head: &mut [f64]) {
        let dim = head.len();
        let before = head.to_vec();
        for i in 0..dim / 2 {
            let ouro = self.architecture.family == Family::OURO;
            let base = self.architecture.rope_theta();
            let angle = position as f64 / base.powf(2.0 * i as f64 / dim as f64);
            if ouro {
                let (cos, sin) = (self.round(angle.cos()), self.round(angle.sin()));
                let (a, b) = (before[i], before[i + dim / 2]);
                head[i] = self.round(self.round(a * cos) - self.round(b * sin));
                head[i + dim / 2] = self.round(self.round(b * cos) + self.round(a * sin));
            } else {
                let (a, b) = (before[2 * i], before[2 * i + 1]);
                head[2 * i] = self.round(a * angle.cos() - b * angle.sin());
                head[2 * i + 1] = self.round(a * angle.sin() + b * angle.cos());
            }
        }
    }

    pub(super) fn norm(&self, x: &[f64], weight: &str) -> Vector {
        let mean = x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64;
        let scale = (mean + f64::from(self.architecture.norm_epsilon())).sqrt();
        x.iter().zip(self.tensor(weight)).map(|(x, w)| self.round(self.round(x / scale) * w)).collect()
    }

    pub(super) fn linear(&self, weight: &str, x: &[f64]) -> Vector {
        matvec(self.tensor(weight), x).into_iter().map(|y| self.round(y)).collect()
    }

    pub(super) fn add(&self, a: &[f64], b: &[f64]) -> Vector {
        a.iter().zip(b).map(|(a, b)| self.round(a + b)).collect()
    }

    pub(super) fn tensor(&self, name: &str) -> &[f64] {
        self.tensors.get(name).unwrap_or_else(|| panic!("no tensor {name}"))
    }

    /// To eight significant bits, ties to even, if the model is in bf16.
    pub(super) fn round(&self, x: f64) -> f64 {
        if !self.bf16 {
            return x;
        }
        // Of an f64's 52 fraction bits, 45 go.
        let (kept, half) = (!0 << 45, (1 << 44) - 1);
        let bits = x.to_bits();
        f64::from_bits((bits + half + (bits >> 45 & 1)) & kept)
    }
}

pub(super) fn matvec(weight: &[f64], x: &[f64]) -> Vector {
    weight.chunks_exact(x.len()).map(|row| dot(row, x)).collect()
}

pub(super) fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

pub(super) fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}
