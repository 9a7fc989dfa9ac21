//! Memory of the device and pinned memory of the host, freed when dropped.
#![expect(unsafe_code, reason = "every call of the driver is one")]

use std::ffi::c_void;

#[cfg(test)]
use bytemuck::Pod;
use cudarc::driver::sys;

use super::device::{CudaDevice, check};
use super::error::CudaError;

/// An address on the device.
pub(super) type Address = sys::CUdeviceptr;

/// Bytes on the device.
#[derive(Debug)]
pub(super) struct Buffer {
    address: Address,
    bytes: usize,
}

impl Buffer {
    /// Uninitialised bytes. `what` names them in an error.
    pub(super) fn new(device: &CudaDevice, bytes: usize, what: &str) -> Result<Self, CudaError> {
        let mut address = 0;
        // SAFETY: the out pointer is to a local. At least one byte, since the driver refuses none.
        let result = unsafe { sys::cuMemAlloc_v2(&mut address, bytes.max(1)) };
        if result == sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY {
            let (free, total) = device.memory()?;
            return Err(CudaError::OutOfMemory {
                what: what.to_owned(),
                needed: bytes as u64,
                free,
                total,
                advice: "lower kv.blocks, max_num_seqs or max_num_batched_tokens, or take a smaller model",
            });
        }
        check("cuMemAlloc", result)?;
        Ok(Self { address, bytes })
    }

    /// The same, zeroed.
    pub(super) fn zeroed(device: &CudaDevice, bytes: usize, what: &str) -> Result<Self, CudaError> {
        let buffer = Self::new(device, bytes, what)?;
        // SAFETY: the range is this buffer.
        check("cuMemsetD8Async", unsafe { sys::cuMemsetD8Async(buffer.address, 0, bytes, device.stream()) })?;
        Ok(buffer)
    }

    pub(super) fn address(&self) -> Address {
        self.address
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The address of byte `offset`.
    pub(super) fn at(&self, offset: usize) -> Address {
        assert!(offset <= self.bytes, "byte {offset} of {}", self.bytes);
        self.address + offset as u64
    }

    /// Queues a copy from pinned memory, which must stay as it is until the copy has run.
    pub(super) fn upload(&self, device: &CudaDevice, from: &Pinned, bytes: usize) -> Result<(), CudaError> {
        assert!(bytes <= self.bytes && bytes <= from.bytes, "{bytes} bytes into {} from {}", self.bytes, from.bytes);
        // SAFETY: both ranges hold `bytes`; the executor keeps `from` untouched until the batch's event has passed.
        check("cuMemcpyHtoDAsync", unsafe {
            sys::cuMemcpyHtoDAsync_v2(self.address, from.pointer, bytes, device.stream())
        })
    }

    /// Queues a copy of the first bytes into pinned memory.
    pub(super) fn download(&self, device: &CudaDevice, to: &Pinned, bytes: usize) -> Result<(), CudaError> {
        self.download_part(device, 0, (to, 0), bytes)
    }

    /// Queues a copy of the bytes from `offset` on into pinned memory, at a byte of it.
    pub(super) fn download_part(
        &self,
        device: &CudaDevice,
        offset: usize,
        (to, at): (&Pinned, usize),
        bytes: usize,
    ) -> Result<(), CudaError> {
        let (from_end, to_end) = (offset + bytes, at + bytes);
        assert!(
            from_end <= self.bytes && to_end <= to.bytes,
            "to {from_end} of {}, {to_end} of {}",
            self.bytes,
            to.bytes
        );
        // SAFETY: both ranges lie within their buffers; `to` is read only after the batch's event has passed.
        check("cuMemcpyDtoHAsync", unsafe {
            sys::cuMemcpyDtoHAsync_v2(
                to.pointer.cast::<u8>().add(at).cast(),
                self.address + offset as u64,
                bytes,
                device.stream(),
            )
        })
    }

    /// Copies ordinary memory to byte `offset`, behind everything queued, and waits for it.
    ///
    /// On the device's stream, since no other is ordered with what is queued there: a buffer's zeros came behind its numbers
    /// once, when the GPU was busy.
    pub(super) fn write(&self, device: &CudaDevice, offset: usize, from: &[u8]) -> Result<(), CudaError> {
        assert!(offset + from.len() <= self.bytes, "{} bytes at {offset} of {}", from.len(), self.bytes);
        // SAFETY: the range lies within the buffer, and `from` lives until the copy has run.
        check("cuMemcpyHtoDAsync", unsafe {
            sys::cuMemcpyHtoDAsync_v2(self.address + offset as u64, from.as_ptr().cast(), from.len(), device.stream())
        })?;
        device.synchronize()
    }

    /// Copies the first `count` values to ordinary memory, at once.
    #[cfg(test)]
    pub(super) fn read<T: Pod>(&self, count: usize) -> Result<Vec<T>, CudaError> {
        let mut values = vec![T::zeroed(); count];
        let bytes = std::mem::size_of_val(values.as_slice());
        assert!(bytes <= self.bytes, "{bytes} of {} bytes", self.bytes);
        // SAFETY: `values` holds `bytes`, any bits are a `T`.
        check("cuMemcpyDtoH", unsafe { sys::cuMemcpyDtoH_v2(values.as_mut_ptr().cast(), self.address, bytes) })?;
        Ok(values)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: allocated by `new`, freed once; the driver waits for work that uses it.
        let _ = unsafe { sys::cuMemFree_v2(self.address) };
    }
}

/// Pinned bytes of the host, which the device reads and writes by itself.
#[derive(Debug)]
pub(super) struct Pinned {
    pointer: *mut c_void,
    bytes: usize,
}

impl Pinned {
    pub(super) fn new(bytes: usize) -> Result<Self, CudaError> {
        let mut pointer = std::ptr::null_mut();
        // SAFETY: the out pointer is to a local; flag 1 makes it pinned for every context.
        check("cuMemHostAlloc", unsafe { sys::cuMemHostAlloc(&mut pointer, bytes.max(16), 1) })?;
        let pinned = Self { pointer, bytes: bytes.max(16) };
        // SAFETY: the range was just allocated.
        unsafe { std::ptr::write_bytes(pinned.pointer.cast::<u8>(), 0, pinned.bytes) };
        Ok(pinned)
    }

    /// Its address as the device sees it, which is the host's.
    pub(super) fn address(&self) -> Address {
        self.pointer as u64
    }

    pub(super) fn len(&self) -> usize {
        self.bytes
    }

    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: initialised in `new`; the caller reads only after the event behind the device's writes.
        unsafe { std::slice::from_raw_parts(self.pointer.cast(), self.bytes) }
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.pointer.cast(), self.bytes) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: allocated by `new`, freed once.
        let _ = unsafe { sys::cuMemFreeHost(self.pointer) };
    }
}
