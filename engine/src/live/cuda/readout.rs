//! Exit signals of the logits that rows would give if they left now.

use super::arguments::Readout;
use super::error::CudaError;
use super::stages::StageRun;
use crate::models::criterion::Criterion;

/// What `readout.cu` computes for a criterion; nothing for those that look at the state.
fn kernel_signal(criterion: Criterion) -> Option<i32> {
    match criterion {
        Criterion::EntropyDifference => Some(0),
        Criterion::Kl => Some(1),
        Criterion::ArgmaxStability => Some(2),
        Criterion::Hazard | Criterion::LatentDifference => None,
    }
}

impl StageRun<'_> {
    /// Queues the layers behind the loop, the LM head and the signals, behind a core step. The states stay as they are; the
    /// layers store the positions' keys and values as their coda will, which then stores them again.
    pub(super) fn read_out(&mut self) -> Result<(), CudaError> {
        let Some(signal) = kernel_signal(self.criterion) else { return Ok(()) };
        self.coda()?;
        let s = self.store;
        self.ops.logits(&self.model.head, (s.scratch.y.address(), s.scratch.logits.address()), self.rows.count)?;
        let readout = Readout {
            header: self.rows.header,
            rows: self.rows.rows,
            logits: s.scratch.logits.address(),
            last: s.positions.last_logits.address(),
            signals: s.scratch.results.at(s.signals_at()),
            signal,
        };
        self.ops.exit_signal(readout, self.rows.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::architecture::Architecture;
    use crate::live::cpu::readout::{argmax, divergence, entropy};
    use crate::live::cuda::compile::kernel;
    use crate::live::cuda::device::{CudaDevice, Shape, arguments};
    use crate::live::cuda::memory::Buffer;
    use crate::models::counter::{Stream, centred, draw};

    /// Logits far from zero with a few large ones, as confident models give them; two rows of a seed are close.
    fn logits(row: u64, vocab: u64) -> Vec<f32> {
        let made_up = |id: u64| {
            let noise = |stream, a| centred(draw(3, stream, a, id));
            let flat = 40.0 + 4.0 * noise(Stream::Sampling, 0) + 0.5 * noise(Stream::Sampling, 1 + row);
            if draw(3, Stream::Prompts, 0, id).is_multiple_of(97) {
                flat + 12.0 * noise(Stream::Weights, 0)
            } else {
                flat
            }
        };
        (0..vocab).map(made_up).collect()
    }

    #[test]
    #[ignore = "needs a CUDA device"]
    fn signals_of_given_logits_are_the_cpus() {
        let device = CudaDevice::open(0).unwrap();
        for vocab in [512, 65_536, 166_144] {
            let architecture = Architecture { vocab, ..Architecture::builtin("tiny-huginn").unwrap() };
            let run = kernel(&device, &architecture, "readout.cu", "exit_signal").unwrap();
            let upload = |bytes: &[u8]| {
                let buffer = Buffer::zeroed(&device, bytes.len(), "numbers").unwrap();
                buffer.write(&device, 0, bytes).unwrap();
                buffer
            };
            // Three rows of four that are launched, in their first, second and fifth loop; places in another order.
            let rows: [[i32; 5]; 4] = [[0, 2, 9, 1, -1], [1, 0, 9, 2, -1], [2, 1, 9, 5, -1], [3, 3, 9, 2, -1]];
            let now: Vec<Vec<f32>> = (0..4).map(|row| logits(row, vocab)).collect();
            let before: Vec<Vec<f32>> = (4..8).map(|row| logits(row, vocab)).collect();
            let header = upload(bytemuck::cast_slice(&[3_i32, 0, 0, 0]));
            let table = upload(bytemuck::cast_slice(&rows));
            let on_device = upload(bytemuck::cast_slice(&now.concat()));
            for criterion in [Criterion::EntropyDifference, Criterion::Kl, Criterion::ArgmaxStability] {
                let last = upload(bytemuck::cast_slice(&before.concat()));
                let signals = upload(&[0; 4 * 8]);
                let readout = Readout {
                    header: header.address(),
                    rows: table.address(),
                    logits: on_device.address(),
                    last: last.address(),
                    signals: signals.address(),
                    signal: kernel_signal(criterion).unwrap(),
                };
                let shape = Shape { grid: (4, 1), threads: 1024, shared_bytes: 0, early: false };
                device.launch(run, shape, arguments![readout]).unwrap();
                device.synchronize().unwrap();
                let got = signals.read::<[f32; 2]>(4).unwrap();
                let mut kept = before.clone();
                for (row, &[_, place, _, depth, _]) in rows.iter().enumerate().take(3) {
                    let last = (depth > 1).then(|| before[place as usize].as_slice());
                    let expected = match criterion {
                        Criterion::EntropyDifference => entropy(&now[row]),
                        Criterion::Kl => divergence(last, &now[row]),
                        _ => argmax(&now[row]),
                    };
                    let [signal, nothing] = got[row];
                    let what = format!("vocab {vocab}, row {row}, {}", criterion.name());
                    assert!((signal - expected).abs() < 2e-5 && nothing == 0.0, "{what}: {signal}, not {expected}");
                    println!("{what}: {signal:e}, on the CPU {expected:e}");
                    if criterion == Criterion::Kl {
                        kept[place as usize].clone_from(&now[row]);
                    }
                }
                assert_eq!(got[3], [0.0; 2], "a row behind the last tells nothing");
                assert!(last.read::<f32>(4 * vocab as usize).unwrap() == kept.concat(), "vocab {vocab}: {criterion:?}");
            }
        }
    }
}
