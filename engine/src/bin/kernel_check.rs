//! Compiles every CUDA kernel for every model, without a GPU: `kernel_check [sm_90a]`.

use std::process::ExitCode;

use engine::architecture::Architecture;
use engine::live::cuda::check_kernels;

fn main() -> ExitCode {
    let arch = std::env::args().nth(1).unwrap_or_else(|| "sm_90a".into());
    let builtin = || Architecture::BUILTIN.into_iter().filter_map(Architecture::builtin);
    // Query heads that share KV heads, in each family.
    let shared = builtin().filter(|model| model.name.starts_with("tiny"));
    let shared =
        shared.map(|model| Architecture { kv_heads: Some(1), name: format!("{}, one KV head", model.name), ..model });
    for architecture in builtin().chain(shared) {
        let block_tokens = if architecture.name.starts_with("tiny") { 4 } else { 16 };
        match check_kernels(&architecture, block_tokens, &arch) {
            Ok(lines) => lines.iter().for_each(|line| println!("{line}")),
            Err(error) => {
                eprintln!("{}: {error}", architecture.name);
                return ExitCode::from(if matches!(error, engine::live::cuda::CudaError::Missing { .. }) {
                    2
                } else {
                    1
                });
            }
        }
    }
    ExitCode::SUCCESS
}
