//! Compiles every CUDA kernel for every model, without a GPU: `kernel_check [sm_90a]`.

use std::process::ExitCode;

use engine::architecture::Architecture;
use engine::cuda::check_kernels;

fn main() -> ExitCode {
    let arch = std::env::args().nth(1).unwrap_or_else(|| "sm_90a".into());
    for name in Architecture::BUILTIN {
        let Some(architecture) = Architecture::builtin(name) else { continue };
        let block_tokens = if name.starts_with("tiny") { 4 } else { 16 };
        match check_kernels(&architecture, block_tokens, &arch) {
            Ok(lines) => lines.iter().for_each(|line| println!("{line}")),
            Err(error) => {
                eprintln!("{name}: {error}");
                return ExitCode::from(if matches!(error, engine::cuda::CudaError::Missing { .. }) { 2 } else { 1 });
            }
        }
    }
    ExitCode::SUCCESS
}
