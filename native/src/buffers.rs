//! Access to Python buffers and file descriptors. With objects.rs, the only unsafe code of this crate.

use pyo3::exceptions::PyMemoryError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes};

/// Bytes of a Python object that supports the buffer protocol. The buffer is held until this value is dropped.
pub struct Input {
    view: ffi::Py_buffer,
}

impl Input {
    pub fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let mut view = ffi::Py_buffer::new();
        // SAFETY: both pointers are valid, and this thread holds the interpreter lock. PyBUF_SIMPLE requests contiguous
        // bytes without a shape, so no field of the view points into the view itself, and the view may be moved.
        if unsafe { ffi::PyObject_GetBuffer(object.as_ptr(), &mut view, ffi::PyBUF_SIMPLE) } != 0 {
            return Err(PyErr::fetch(object.py()));
        }
        Ok(Self { view })
    }

    pub fn bytes(&self) -> &[u8] {
        let Ok(length) = usize::try_from(self.view.len) else { return &[] };
        if length == 0 || self.view.buf.is_null() {
            return &[];
        }
        // SAFETY: the exporter keeps `len` bytes at `buf` until the view is released, which takes `&mut self`. The
        // caller does not write to them during the call (README.md, "Buffers"). `zlib.crc32` and `hashlib` rely on the
        // same rule when they release the interpreter lock. Bytes have no alignment and no invalid values.
        unsafe { std::slice::from_raw_parts(self.view.buf.cast::<u8>(), length) }
    }
}

impl Drop for Input {
    fn drop(&mut self) {
        // SAFETY: PyObject_GetBuffer filled the view, and it is released only here. Inputs live on the stack of
        // functions that Python called, so this thread holds the interpreter lock.
        unsafe { ffi::PyBuffer_Release(&mut self.view) }
    }
}

/// Allocate a bytearray without writing to its memory. The system commits a page on the first write to it, so a large
/// size that is never filled costs no memory.
pub fn uninitialized(py: Python<'_>, length: usize) -> PyResult<Bound<'_, PyByteArray>> {
    let size = isize::try_from(length).map_err(|_| PyMemoryError::new_err("larger than the address space"))?;
    // SAFETY: with a null source the function returns a new bytearray of this size, or null with an exception set. This
    // function does not read its bytes and creates no reference to them.
    unsafe {
        let array = ffi::PyByteArray_FromStringAndSize(std::ptr::null(), size);
        Ok(Bound::from_owned_ptr_or_err(py, array)?.cast_into_unchecked())
    }
}

/// Create a bytearray and let `fill` write all its bytes. `PyByteArray::new_with` would first fill the memory with
/// zeros, which is a second pass over new pages.
pub fn new_bytearray<'py>(
    py: Python<'py>,
    length: usize,
    fill: impl FnOnce(&mut [u8]) -> PyResult<()>,
) -> PyResult<Bound<'py, PyByteArray>> {
    let array = uninitialized(py, length)?;
    // SAFETY: no other code has this object yet, so nothing resizes or reads it. The interpreter allocated the memory,
    // so the compiler makes no assumption about its contents, and every value of a byte is valid. The loops only write
    // to it. If `fill` fails, the object is dropped before anything reads it.
    fill(unsafe { array.as_bytes_mut() })?;
    Ok(array)
}

/// Copy numbers into a new Python `bytes` object.
pub fn bytes_of_numbers<'py, const N: usize>(
    py: Python<'py>,
    count: usize,
    numbers: impl Iterator<Item = [u8; N]>,
) -> PyResult<Bound<'py, PyBytes>> {
    let size = count.checked_mul(N).ok_or_else(|| PyMemoryError::new_err("larger than the address space"))?;
    PyBytes::new_with(py, size, |out| {
        for (room, number) in out.chunks_exact_mut(N).zip(numbers) {
            room.copy_from_slice(&number);
        }
        Ok(())
    })
}

/// Mutable bytes of a bytearray that no code outside this crate has a reference to.
#[cfg(unix)]
#[allow(clippy::mut_from_ref)] // the object owns its memory; a reference to it is not a reference to its bytes
pub fn bytes_mut<'a>(memory: &'a Bound<'_, PyByteArray>) -> &'a mut [u8] {
    // SAFETY: the caller created this object and has not passed it on, so nothing resizes or reads it. The caller uses
    // one such slice at a time. For the contents of the memory see `new_bytearray`.
    unsafe { memory.as_bytes_mut() }
}

/// Take ownership of a socket's file descriptor. Returns None for a negative number.
#[cfg(unix)]
pub fn owned_socket(descriptor: std::os::fd::RawFd) -> Option<std::net::TcpStream> {
    use std::os::fd::FromRawFd;
    // SAFETY: the caller has detached the descriptor from its Python object, so this value is its only owner.
    (descriptor >= 0).then(|| unsafe { std::net::TcpStream::from_raw_fd(descriptor) })
}
