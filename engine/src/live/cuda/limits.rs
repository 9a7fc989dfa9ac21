//! What the device reaches at best, for the physical floor in reports: a large copy and a large product.
#![expect(unsafe_code, reason = "every call of the driver is one")]

use cudarc::driver::sys;

use super::compile::kernel;
use super::cublaslt::{CublasLt, Product};
use super::device::{CudaDevice, Shape, arguments, check};
use super::error::CudaError;
use super::memory::Buffer;
use crate::architecture::Architecture;

/// Bytes of each buffer: many times the largest cache.
const BYTES: usize = 2 << 30;

/// Rows, outputs and inputs of the product.
const SIDE: usize = 8192;

/// Timed goes; the fastest counts, since a limit is what nothing exceeds.
const REPEATS: usize = 5;

/// Measured limits of a device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Bytes read and written by a copy within the device's memory.
    pub bandwidth_gb_per_s: f64,
    /// Multiplications and additions of a bf16 product of random numbers with f32 sums.
    pub compute_tflops: f64,
}

impl Limits {
    /// Measures a device that does nothing else, in under a second.
    ///
    /// # Errors
    /// 4 GiB are not free, or a library fails.
    pub fn of(device: &CudaDevice) -> Result<Self, CudaError> {
        let [from, to] = [(); 2].map(|()| Buffer::new(device, BYTES, "a buffer to copy"));
        let (from, to) = (from?, to?);
        // Numbers that are all alike would take less power, and so be multiplied faster, than a model's.
        let any = Architecture::builtin("tiny-ouro").expect("built in");
        let fill = kernel(device, &any, "fill.cu", "fill_noise")?;
        let shape = Shape { grid: (1024, 1), threads: 256, shared_bytes: 0, early: false };
        let (address, numbers, seed) = (from.address(), (BYTES / 2) as u64, 1_u64);
        device.launch(fill, shape, arguments![address, numbers, seed])?;
        let copy_ms = fastest_ms(device, || {
            // SAFETY: both buffers hold so many bytes.
            check("cuMemcpyDtoDAsync", unsafe {
                sys::cuMemcpyDtoDAsync_v2(to.address(), from.address(), BYTES, device.stream())
            })
        })?;
        let cublaslt = CublasLt::new(device)?;
        let product = Product { rows: SIDE, outputs: SIDE, inputs: SIDE, f32_out: false };
        let operands = (from.address(), from.at(SIDE * SIDE * 2), to.address());
        let product_ms = fastest_ms(device, || cublaslt.multiply(device, product, operands))?;
        Ok(Self {
            bandwidth_gb_per_s: 2.0 * BYTES as f64 / copy_ms / 1e6,
            compute_tflops: 2.0 * (SIDE as f64).powi(3) / product_ms / 1e9,
        })
    }
}

/// The shortest time of queued work; the first go warms up.
fn fastest_ms(device: &CudaDevice, mut work: impl FnMut() -> Result<(), CudaError>) -> Result<f64, CudaError> {
    work()?;
    let mut fastest = f64::INFINITY;
    for _ in 0..REPEATS {
        let (start, end) = (device.event()?, device.event()?);
        device.record(&start)?;
        work()?;
        device.record(&end)?;
        end.wait()?;
        fastest = fastest.min(end.since_ms(&start)?);
    }
    Ok(fastest)
}
