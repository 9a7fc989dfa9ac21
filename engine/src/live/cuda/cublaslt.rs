//! cuBLASLt for many rows, with algorithms chosen once per layer and row bucket and kept.
//!
//! The safe wrapper asks the heuristic at every call. Here a product of the same layer and bucket always runs the same
//! algorithm, and a split K is merged in order, so that the same batch gives the same bits.
#![expect(unsafe_code, reason = "every call of the library is one")]

use std::cell::RefCell;
use std::collections::HashMap;

use cudarc::cublaslt::sys;

use super::device::CudaDevice;
use super::error::CudaError;
use super::memory::{Address, Buffer};

/// What cuBLASLt may use to shuffle data in, as NVIDIA advises for Hopper.
const WORKSPACE_BYTES: usize = 32 << 20;

/// A product `y [rows, outputs] = x [rows, inputs] W^T [outputs, inputs]` in bf16 with f32 sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Product {
    pub(super) rows: usize,
    pub(super) outputs: usize,
    pub(super) inputs: usize,
    /// Logits are stored as they were summed.
    pub(super) f32_out: bool,
}

/// The library, its workspace and the algorithms chosen so far.
#[derive(Debug)]
pub(super) struct CublasLt {
    handle: sys::cublasLtHandle_t,
    workspace: Buffer,
    algorithms: RefCell<HashMap<Product, sys::cublasLtMatmulAlgo_t>>,
}

/// Descriptors of one product, destroyed when dropped.
struct Descriptors {
    product: sys::cublasLtMatmulDesc_t,
    weights: sys::cublasLtMatrixLayout_t,
    x: sys::cublasLtMatrixLayout_t,
    y: sys::cublasLtMatrixLayout_t,
}

impl CublasLt {
    pub(super) fn new(device: &CudaDevice) -> Result<Self, CudaError> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: the out pointer is to a local.
        unsafe { sys::cublasLtCreate(&mut handle).result() }
            .map_err(|error| CudaError::Driver { call: "cublasLtCreate", message: error.to_string() })?;
        let workspace = Buffer::new(device, WORKSPACE_BYTES, "cuBLASLt's workspace")?;
        Ok(Self { handle, workspace, algorithms: RefCell::default() })
    }

    /// Queues a product. Rows up to the next power of two share an algorithm.
    pub(super) fn multiply(
        &self,
        device: &CudaDevice,
        product: Product,
        (weights, x, y): (Address, Address, Address),
    ) -> Result<(), CudaError> {
        let failed = |message: String| CudaError::Product {
            rows: product.rows,
            outputs: product.outputs,
            inputs: product.inputs,
            message,
        };
        let descriptors = Descriptors::new(product).map_err(|error| failed(error.to_string()))?;
        let bucket = Product { rows: product.rows.next_power_of_two(), ..product };
        let known = self.algorithms.borrow().get(&bucket).copied();
        let algorithm = match known {
            Some(algorithm) => algorithm,
            None => {
                let chosen = Descriptors::new(bucket).and_then(|descriptors| self.choose(&descriptors));
                let chosen = chosen.map_err(|error| failed(error.to_string()))?;
                self.algorithms.borrow_mut().insert(bucket, chosen);
                chosen
            }
        };
        let (one, zero) = (1.0f32, 0.0f32);
        // SAFETY: the matrices have the sizes in their layouts (`ops` gives them), scalars are f32 on the host as the
        // descriptor says, and everything lives until the call returns; the device memory outlives the stream's work.
        let result = unsafe {
            sys::cublasLtMatmul(
                self.handle,
                descriptors.product,
                std::ptr::from_ref(&one).cast(),
                weights as *const _,
                descriptors.weights,
                x as *const _,
                descriptors.x,
                std::ptr::from_ref(&zero).cast(),
                y as *const _,
                descriptors.y,
                y as *mut _,
                descriptors.y,
                &algorithm,
                self.workspace.address() as *mut _,
                WORKSPACE_BYTES,
                device.stream().cast(),
            )
        };
        result.result().map_err(|error| failed(error.to_string()))
    }

    /// The library's first choice among algorithms that add in a fixed order.
    fn choose(&self, d: &Descriptors) -> Result<sys::cublasLtMatmulAlgo_t, cudarc::cublaslt::result::CublasError> {
        use sys::cublasLtMatmulPreferenceAttributes_t as P;
        let mut preference = std::ptr::null_mut();
        // Partial sums of a split K go through the workspace and are added in order, never in place.
        let in_workspace = sys::cublasLtReductionScheme_t::CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE as u32;
        let mut found = 0;
        // SAFETY: a zeroed result is a valid place to write one to; out pointers are to locals, sizes are theirs.
        unsafe {
            let mut result: sys::cublasLtMatmulHeuristicResult_t = std::mem::zeroed();
            sys::cublasLtMatmulPreferenceCreate(&mut preference).result()?;
            let bytes = std::ptr::from_ref(&WORKSPACE_BYTES).cast();
            let set = sys::cublasLtMatmulPreferenceSetAttribute(
                preference,
                P::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                bytes,
                size_of::<usize>(),
            )
            .result()
            .and(
                sys::cublasLtMatmulPreferenceSetAttribute(
                    preference,
                    P::CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                    std::ptr::from_ref(&in_workspace).cast(),
                    size_of::<u32>(),
                )
                .result(),
            );
            let asked = sys::cublasLtMatmulAlgoGetHeuristic(
                self.handle,
                d.product,
                d.weights,
                d.x,
                d.y,
                d.y,
                preference,
                1,
                &mut result,
                &mut found,
            )
            .result();
            sys::cublasLtMatmulPreferenceDestroy(preference).result()?;
            set.and(asked)?;
            if found == 0 {
                sys::cublasStatus_t::CUBLAS_STATUS_NOT_SUPPORTED.result()?;
            }
            result.state.result()?;
            Ok(result.algo)
        }
    }
}

impl Drop for CublasLt {
    fn drop(&mut self) {
        // SAFETY: made by `new`, destroyed once.
        let _ = unsafe { sys::cublasLtDestroy(self.handle) };
    }
}

impl Descriptors {
    /// The library is column-major: its A is W transposed, its B is x, its D is y, all read as they lie.
    fn new(p: Product) -> Result<Self, cudarc::cublaslt::result::CublasError> {
        use cudarc::cublaslt::result as lt;
        use sys::cudaDataType_t as T;
        let out = if p.f32_out { T::CUDA_R_32F } else { T::CUDA_R_16BF };
        let descriptors = Self {
            product: lt::create_matmul_desc(sys::cublasComputeType_t::CUBLAS_COMPUTE_32F, T::CUDA_R_32F)?,
            weights: lt::create_matrix_layout(T::CUDA_R_16BF, p.inputs as u64, p.outputs as u64, p.inputs as i64)?,
            x: lt::create_matrix_layout(T::CUDA_R_16BF, p.inputs as u64, p.rows as u64, p.inputs as i64)?,
            y: lt::create_matrix_layout(out, p.outputs as u64, p.rows as u64, p.outputs as i64)?,
        };
        let transposed: i32 = 1; // CUBLAS_OP_T
        // SAFETY: the descriptor exists, and the value is of the attribute's type.
        unsafe {
            lt::set_matmul_desc_attribute(
                descriptors.product,
                sys::cublasLtMatmulDescAttributes_t::CUBLASLT_MATMUL_DESC_TRANSA,
                std::ptr::from_ref(&transposed).cast(),
                size_of_val(&transposed),
            )?;
        }
        Ok(descriptors)
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        // SAFETY: each was made by `new` and is destroyed once.
        unsafe {
            let _ = sys::cublasLtMatmulDescDestroy(self.product);
            let _ = sys::cublasLtMatrixLayoutDestroy(self.weights);
            let _ = sys::cublasLtMatrixLayoutDestroy(self.x);
            let _ = sys::cublasLtMatrixLayoutDestroy(self.y);
        }
    }
}
