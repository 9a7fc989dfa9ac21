//! Kernels from source to machine code: compiled by NVRTC for one model and architecture, kept on disk by content.
#![expect(unsafe_code, reason = "every call of the compiler is one")]

use std::ffi::{CString, c_char};
use std::path::PathBuf;

use cudarc::nvrtc::sys;

use super::device::{CudaDevice, Kernel};
use super::error::CudaError;
use crate::architecture::Architecture;
use crate::models::criterion::Criterion;
use crate::models::family::After;
use crate::models::rope::RopeForm;

const COMMON: &str = concat!(include_str!("kernels/common.cuh"), include_str!("kernels/rope.cuh"));

/// A kernel file: its name, its text, and the kernels in it that are used.
pub(super) struct Source {
    pub(super) file: &'static str,
    text: &'static str,
    pub(super) kernels: &'static [&'static str],
}

/// A kernel file behind the headers that it alone needs.
macro_rules! source {
    ($file:literal $(behind [$($header:literal),*])?, $($kernel:literal),* $(,)?) => {
        Source {
            file: $file,
            text: concat!(
                $($(include_str!(concat!("kernels/", $header)),)*)?
                include_str!(concat!("kernels/", $file))
            ),
            kernels: &[$($kernel),*],
        }
    };
}

/// Every kernel file.
static SOURCES: [Source; 11] = [
    source!("fill.cu", "fill_weights", "fill_noise"),
    source!("begin.cu", "begin"),
    source!("embed.cu", "embed", "start_loop", "join", "gather"),
    source!("norm.cu", "norm_step", "qk_norm", "silu"),
    source!(
        "gemm_stream.cu",
        "stream_16",
        "stream_32",
        "stream_64",
        "stream_wide_16",
        "stream_wide_32",
        "stream_wide_64",
        "stream_f32_16",
        "stream_f32_32",
        "stream_f32_64",
        "stream_f32_wide_16",
        "stream_f32_wide_32",
        "stream_f32_wide_64",
        "stream_gated_16",
        "stream_gated_32",
        "stream_gated_64",
    ),
    source!("gemm_tile.cu", "tile_bf16", "tile_f32"),
    source!(
        "attention_decode.cu" behind ["attention_decode.cuh", "attention_decode_shared.cuh"],
        "decode_store",
        "decode_attention",
        "decode_attention_stored",
        "decode_attention_wide",
    ),
    source!("attention_prefill.cu", "prefill_store", "prefill_attention"),
    source!("sample.cu", "sample"),
    source!("readout.cu", "exit_signal"),
    source!("transfer.cu", "move_blocks", "move_depths", "set_tokens"),
];

/// The files that an architecture can run.
pub(super) fn sources(arch: &str) -> impl Iterator<Item = &'static Source> {
    let hopper = arch == "sm_90a";
    SOURCES.iter().filter(move |source| hopper || source.file != "gemm_stream.cu")
}

/// What kernels are compiled for.
#[derive(Clone, Copy, Debug)]
pub(super) struct For<'a> {
    pub(super) architecture: &'a Architecture,
    pub(super) block_tokens: u32,
    pub(super) criterion: Criterion,
}

/// The model's shape as the kernels see it.
fn defines(For { architecture, block_tokens, criterion }: For<'_>) -> Vec<String> {
    let (a, form) = (architecture, architecture.form());
    // Where logits decide nobody asks for the state's signal, so the kernels are the model's usual ones.
    let of_state = if criterion.reads_logits() { Criterion::of(a) } else { criterion };
    let numbers = [
        ("HIDDEN", a.hidden),
        ("FFN", a.ffn),
        ("HEADS", a.heads),
        ("KV_HEADS", a.kv_heads()),
        ("HEAD_DIM", a.head_dim),
        ("VOCAB", a.vocab),
        ("BLOCK_TOKENS", u64::from(block_tokens)),
        ("NORM_BEFORE", u64::from(form.norms.before)),
        ("NORM_BRANCH", u64::from(form.norms.after == After::Branch)),
        ("NORM_SUM", u64::from(form.norms.after == After::Sum)),
        ("ROPE_HALVES", u64::from(form.rope == RopeForm::Halves)),
        ("EXIT_HAZARD", u64::from(of_state == Criterion::Hazard)),
    ];
    let mut defines: Vec<String> = numbers.map(|(name, value)| format!("-D{name}={value}")).to_vec();
    let reals = [("NORM_EPSILON", a.norm_epsilon()), ("NOISE_STD", a.noise_std())];
    defines.extend(reals.map(|(name, value)| format!("-D{name}={value:e}f")));
    defines
}

/// Machine code of a file for a model: from the cache, or compiled.
///
/// # Errors
/// It does not compile.
pub(super) fn compile(source: &Source, model: For<'_>, arch: &str) -> Result<Vec<u8>, CudaError> {
    let mut options = defines(model);
    options.extend([format!("--gpu-architecture={arch}"), "--std=c++17".into()]);
    let text = format!("{COMMON}\n{}", source.text);
    let cached = cache_path(&text, &options);
    if let Some(image) = cached.as_ref().and_then(|path| std::fs::read(path).ok()) {
        return Ok(image);
    }
    let image = run(source.file, arch, &text, &options)?;
    if let Some(path) = cached {
        // A cache that cannot be written costs the next start a few seconds and nothing else. The rename keeps another
        // process from reading half a file.
        let partial = path.with_extension(format!("{}", std::process::id()));
        let _ = path.parent().map(std::fs::create_dir_all);
        let _ = std::fs::write(&partial, &image).and_then(|()| std::fs::rename(&partial, &path));
    }
    Ok(image)
}

/// One kernel that knows of no KV block.
pub(super) fn kernel(
    device: &CudaDevice,
    architecture: &Architecture,
    file: &str,
    name: &str,
) -> Result<Kernel, CudaError> {
    let arch = device.arch();
    let source = sources(&arch).find(|source| source.file == file).expect("a kernel file");
    let image = compile(source, For { architecture, block_tokens: 1, criterion: Criterion::of(architecture) }, &arch)?;
    Ok(device.load(&image, &[name])?[0])
}

fn run(file: &'static str, arch: &str, text: &str, options: &[String]) -> Result<Vec<u8>, CudaError> {
    let failed = |log: String| CudaError::Compile { file, arch: arch.to_owned(), log };
    let text = CString::new(text).map_err(|error| failed(error.to_string()))?;
    let name = CString::new(file).map_err(|error| failed(error.to_string()))?;
    let options: Vec<CString> = options.iter().filter_map(|option| CString::new(option.as_str()).ok()).collect();
    let pointers: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
    let mut program = std::ptr::null_mut();
    // SAFETY: all strings end in zero and outlive the calls; buffers have the sizes that the compiler names.
    unsafe {
        let none = std::ptr::null();
        sys::nvrtcCreateProgram(&mut program, text.as_ptr(), name.as_ptr(), 0, none, none)
            .result()
            .map_err(|error| failed(format!("{error:?}")))?;
        let compiled = sys::nvrtcCompileProgram(program, pointers.len() as i32, pointers.as_ptr()).result();
        let image = match compiled {
            Ok(()) => image(program).map_err(|error| failed(format!("{error:?}"))),
            Err(_) => Err(failed(log(program))),
        };
        let _ = sys::nvrtcDestroyProgram(&mut program);
        image
    }
}

/// # Safety
/// The program was compiled.
unsafe fn image(program: sys::nvrtcProgram) -> Result<Vec<u8>, cudarc::nvrtc::result::NvrtcError> {
    let mut bytes = 0;
    // SAFETY: as the caller promises; the buffer has the size that the compiler names.
    unsafe {
        sys::nvrtcGetCUBINSize(program, &mut bytes).result()?;
        let mut image = vec![0u8; bytes];
        sys::nvrtcGetCUBIN(program, image.as_mut_ptr().cast()).result()?;
        Ok(image)
    }
}

/// # Safety
/// The program exists.
unsafe fn log(program: sys::nvrtcProgram) -> String {
    let mut bytes = 0;
    // SAFETY: as the caller promises; the buffer has the size that the compiler names.
    unsafe {
        let _ = sys::nvrtcGetProgramLogSize(program, &mut bytes);
        let mut log = vec![0u8; bytes];
        let _ = sys::nvrtcGetProgramLog(program, log.as_mut_ptr().cast());
        String::from_utf8_lossy(&log).trim_end_matches('\0').to_owned()
    }
}

/// `$LOOPBATCH_KERNEL_CACHE`, else `$XDG_CACHE_HOME/loopbatch`, else `~/.cache/loopbatch`; none if there is no home.
fn cache_path(text: &str, options: &[String]) -> Option<PathBuf> {
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let folder = match std::env::var_os("LOOPBATCH_KERNEL_CACHE") {
        Some(folder) => PathBuf::from(folder),
        None => std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or_else(home)?.join("loopbatch"),
    };
    let (mut major, mut minor) = (0, 0);
    // SAFETY: out pointers are to locals. Another compiler makes another program.
    let _ = unsafe { sys::nvrtcVersion(&mut major, &mut minor) };
    let key = format!("{major}.{minor}{options:?}{text}");
    let hash = |start: u64| key.bytes().fold(start, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    Some(folder.join(format!("{:016x}{:016x}.cubin", hash(0xcbf2_9ce4_8422_2325), hash(0x6c62_272e_07bb_0142))))
}

/// Compiles every kernel for a model without a GPU, and names what was compiled.
///
/// # Errors
/// NVRTC is missing, or the first file that does not compile.
pub fn check_kernels(architecture: &Architecture, block_tokens: u32, arch: &str) -> Result<Vec<String>, CudaError> {
    // SAFETY: only tries to load the library.
    if !unsafe { sys::is_culib_present() } {
        return Err(CudaError::Missing { library: "NVRTC (libnvrtc)", needed_for: "it compiles kernels" });
    }
    let criterion = Criterion::of(architecture);
    sources(arch)
        .map(|source| {
            let bytes = compile(source, For { architecture, block_tokens, criterion }, arch)?.len();
            Ok(format!(
                "{} for {}, {arch}: {} kernels, {bytes} bytes",
                source.file,
                architecture.name,
                source.kernels.len()
            ))
        })
        .collect()
}
