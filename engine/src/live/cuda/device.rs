//! One GPU: its context, one stream, launches, graphs and events. The driver is called here and in `memory` alone.
#![expect(unsafe_code, reason = "every call of the driver is one")]

use std::ffi::{CString, c_void};
use std::rc::Rc;

use cudarc::driver::sys;

use super::error::CudaError;

/// Turns the driver's answer into an error that names the call.
pub(super) fn check(call: &'static str, result: sys::CUresult) -> Result<(), CudaError> {
    result.result().map_err(|error| CudaError::Driver { call, message: error.to_string() })
}

/// A GPU that is ready to run; cheap to clone.
#[derive(Clone, Debug)]
pub struct CudaDevice {
    inner: Rc<Inner>,
}

#[derive(Debug)]
struct Inner {
    stream: sys::CUstream,
    multiprocessors: u32,
    arch: (i32, i32),
    name: String,
}

/// A compiled kernel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kernel {
    function: sys::CUfunction,
}

/// How a kernel is launched.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) grid: (u32, u32),
    pub(super) threads: u32,
    pub(super) shared_bytes: u32,
    /// Start while the previous kernel still runs; the kernel itself waits before it reads what that one writes.
    pub(super) early: bool,
}

/// A kernel's arguments, by reference.
macro_rules! arguments {
    ($($argument:expr),* $(,)?) => {
        &mut [$(std::ptr::from_ref(&$argument).cast_mut().cast::<std::ffi::c_void>()),*]
    };
}
pub(super) use arguments;

impl CudaDevice {
    /// Opens GPU number `ordinal`.
    ///
    /// # Errors
    /// There is no driver, no compiler, no cuBLASLt or no such GPU.
    pub fn open(ordinal: u32) -> Result<Self, CudaError> {
        // SAFETY: these three only try to load a library.
        let present = unsafe {
            [
                ("the NVIDIA driver (libcuda)", "it runs kernels", sys::is_culib_present()),
                ("NVRTC (libnvrtc)", "it compiles kernels", cudarc::nvrtc::sys::is_culib_present()),
                ("cuBLASLt (libcublasLt)", "it multiplies large matrices", cudarc::cublaslt::sys::is_culib_present()),
            ]
        };
        if let Some((library, needed_for, _)) = present.into_iter().find(|(_, _, present)| !present) {
            return Err(CudaError::Missing { library, needed_for });
        }
        let (mut device, mut context, mut stream) = (0, std::ptr::null_mut(), std::ptr::null_mut());
        let mut name = [0 as std::ffi::c_char; 128];
        // SAFETY: out pointers are to locals of the right type; the context is retained for the life of the process.
        unsafe {
            check("cuInit", sys::cuInit(0))?;
            check("cuDeviceGet", sys::cuDeviceGet(&mut device, ordinal as i32))?;
            check("cuDevicePrimaryCtxRetain", sys::cuDevicePrimaryCtxRetain(&mut context, device))?;
            check("cuCtxSetCurrent", sys::cuCtxSetCurrent(context))?;
            check(
                "cuStreamCreate",
                sys::cuStreamCreate(&mut stream, sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32),
            )?;
            check("cuDeviceGetName", sys::cuDeviceGetName(name.as_mut_ptr(), name.len() as i32, device))?;
        }
        let attribute = |attribute| {
            let mut value = 0;
            // SAFETY: the out pointer is to a local, the device was opened above.
            check("cuDeviceGetAttribute", unsafe { sys::cuDeviceGetAttribute(&mut value, attribute, device) })?;
            Ok::<i32, CudaError>(value)
        };
        use sys::CUdevice_attribute as A;
        let multiprocessors = attribute(A::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)? as u32;
        let arch = (
            attribute(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            attribute(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        );
        let name = name.iter().take_while(|c| **c != 0).map(|c| *c as u8 as char).collect();
        Ok(Self { inner: Rc::new(Inner { stream, multiprocessors, arch, name }) })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Its architecture as the compiler names it, Hopper's with the instructions that no later one has.
    pub fn arch(&self) -> String {
        let (major, minor) = self.inner.arch;
        format!("sm_{major}{minor}{}", if (major, minor) == (9, 0) { "a" } else { "" })
    }

    pub(super) fn multiprocessors(&self) -> u32 {
        self.inner.multiprocessors
    }

    pub(super) fn stream(&self) -> sys::CUstream {
        self.inner.stream
    }

    /// The newest CUDA version that the driver knows, like 13.0.
    ///
    /// # Errors
    /// The driver does not tell.
    pub fn cuda_version(&self) -> Result<String, CudaError> {
        let mut version = 0;
        // SAFETY: the out pointer is to a local.
        check("cuDriverGetVersion", unsafe { sys::cuDriverGetVersion(&mut version) })?;
        Ok(format!("{}.{}", version / 1000, version % 1000 / 10))
    }

    /// Free and total bytes.
    ///
    /// # Errors
    /// The driver does not tell.
    pub fn memory(&self) -> Result<(u64, u64), CudaError> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: out pointers are to locals.
        check("cuMemGetInfo", unsafe { sys::cuMemGetInfo_v2(&mut free, &mut total) })?;
        Ok((free as u64, total as u64))
    }

    /// Waits until everything queued has run.
    pub(super) fn synchronize(&self) -> Result<(), CudaError> {
        // SAFETY: the stream lives as long as the device.
        check("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(self.inner.stream) })
    }

    /// Loads a compiled image and picks kernels out of it; modules stay loaded, since kernels outlive any caller.
    pub(super) fn load(&self, image: &[u8], names: &[&str]) -> Result<Vec<Kernel>, CudaError> {
        let mut module = std::ptr::null_mut();
        // SAFETY: `image` is a whole cubin as the compiler gave it; the out pointer is to a local.
        check("cuModuleLoadData", unsafe { sys::cuModuleLoadData(&mut module, image.as_ptr().cast()) })?;
        names
            .iter()
            .map(|name| {
                let mut function = std::ptr::null_mut();
                let name = CString::new(*name).expect("kernel names hold no zero");
                // SAFETY: the module was loaded above, the name ends in zero.
                check("cuModuleGetFunction", unsafe {
                    sys::cuModuleGetFunction(&mut function, module, name.as_ptr())
                })?;
                Ok(Kernel { function })
            })
            .collect()
    }

    /// Lets a kernel use more than 48 KB of dynamic shared memory.
    pub(super) fn allow_shared(&self, kernel: Kernel, bytes: u32) -> Result<(), CudaError> {
        let attribute = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // SAFETY: the function came from a loaded module.
        check("cuFuncSetAttribute", unsafe { sys::cuFuncSetAttribute(kernel.function, attribute, bytes as i32) })
    }

    /// Queues a kernel. `arguments` must match its signature: `ops` has one typed caller per kernel.
    pub(super) fn launch(&self, kernel: Kernel, shape: Shape, arguments: &mut [*mut c_void]) -> Result<(), CudaError> {
        let mut attribute = sys::CUlaunchAttribute {
            id: sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
            pad: [0; 4],
            value: sys::CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 },
        };
        let config = sys::CUlaunchConfig {
            gridDimX: shape.grid.0,
            gridDimY: shape.grid.1,
            gridDimZ: 1,
            blockDimX: shape.threads,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: shape.shared_bytes,
            hStream: self.inner.stream,
            attrs: &mut attribute,
            numAttrs: u32::from(shape.early),
        };
        // SAFETY: the driver copies the arguments before it returns; each points to a value of the kernel's type.
        let result =
            unsafe { sys::cuLaunchKernelEx(&config, kernel.function, arguments.as_mut_ptr(), std::ptr::null_mut()) };
        check("cuLaunchKernelEx", result)
    }

    /// Records what `work` queues, to be launched as one.
    pub(super) fn capture(&self, work: impl FnOnce() -> Result<(), CudaError>) -> Result<Graph, CudaError> {
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: the stream is not capturing: graphs are captured at start, one after the other.
        check("cuStreamBeginCapture", unsafe { sys::cuStreamBeginCapture_v2(self.inner.stream, mode) })?;
        let worked = work();
        let (mut graph, mut executable) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: ends the capture begun above, also after an error in between.
        let ended = unsafe { sys::cuStreamEndCapture(self.inner.stream, &mut graph) };
        worked?;
        check("cuStreamEndCapture", ended)?;
        // SAFETY: the graph was just captured; the executable does not refer to it.
        unsafe {
            let made = check("cuGraphInstantiate", sys::cuGraphInstantiateWithFlags(&mut executable, graph, 0));
            check("cuGraphDestroy", sys::cuGraphDestroy(graph))?;
            made?;
        }
        Ok(Graph { executable })
    }

    pub(super) fn launch_graph(&self, graph: &Graph) -> Result<(), CudaError> {
        // SAFETY: the executable lives as long as `graph`.
        check("cuGraphLaunch", unsafe { sys::cuGraphLaunch(graph.executable, self.inner.stream) })
    }

    /// A point on the stream's timeline.
    pub(super) fn event(&self) -> Result<Event, CudaError> {
        let mut event = std::ptr::null_mut();
        // SAFETY: the out pointer is to a local.
        check("cuEventCreate", unsafe { sys::cuEventCreate(&mut event, 0) })?;
        Ok(Event { event })
    }

    pub(super) fn record(&self, event: &Event) -> Result<(), CudaError> {
        // SAFETY: event and stream live.
        check("cuEventRecord", unsafe { sys::cuEventRecord(event.event, self.inner.stream) })
    }
}

/// A captured sequence of launches.
#[derive(Debug)]
pub(super) struct Graph {
    executable: sys::CUgraphExec,
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: made by `capture`, destroyed once; the driver waits for a launch in flight.
        let _ = unsafe { sys::cuGraphExecDestroy(self.executable) };
    }
}

/// See [`Device::event`].
#[derive(Debug)]
pub(super) struct Event {
    event: sys::CUevent,
}

impl Event {
    pub(super) fn wait(&self) -> Result<(), CudaError> {
        // SAFETY: the event lives.
        check("cuEventSynchronize", unsafe { sys::cuEventSynchronize(self.event) })
    }

    /// Milliseconds from `earlier` to this; both have passed.
    pub(super) fn since_ms(&self, earlier: &Self) -> Result<f64, CudaError> {
        let mut ms = 0.0f32;
        // SAFETY: both events were recorded.
        check("cuEventElapsedTime", unsafe { sys::cuEventElapsedTime_v2(&mut ms, earlier.event, self.event) })?;
        Ok(f64::from(ms))
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: made by `event`, destroyed once.
        let _ = unsafe { sys::cuEventDestroy_v2(self.event) };
    }
}
