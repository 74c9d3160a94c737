//! The border to Python's buffers and descriptors, and the only unsafe code of this crate.

use pyo3::exceptions::PyMemoryError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes};

/// The bytes of a Python object with the buffer protocol, held for as long as this value lives.
pub struct Input {
    view: ffi::Py_buffer,
}

impl Input {
    pub fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let mut view = ffi::Py_buffer::new();
        // SAFETY: both pointers are valid, and the interpreter is held. PyBUF_SIMPLE asks for contiguous bytes without
        // a shape, so no field of the view points into the view itself, and it may be moved.
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
        // caller does not write to them during the call (README.md, "Buffers"), as with `zlib.crc32` or `hashlib`,
        // which also let other threads run meanwhile. Bytes have no alignment and no invalid values.
        unsafe { std::slice::from_raw_parts(self.view.buf.cast::<u8>(), length) }
    }
}

impl Drop for Input {
    fn drop(&mut self) {
        // SAFETY: the view was filled by PyObject_GetBuffer and is released once. Inputs live on the stack of functions
        // that were called by Python, so the interpreter is held here.
        unsafe { ffi::PyBuffer_Release(&mut self.view) }
    }
}

/// Memory for `length` bytes that is not written to: the system gives a page when something comes for it.
pub fn untouched(py: Python<'_>, length: usize) -> PyResult<Bound<'_, PyByteArray>> {
    let size = isize::try_from(length).map_err(|_| PyMemoryError::new_err("larger than the address space"))?;
    // SAFETY: without a source the function returns a new bytearray of this size, or null with an exception set. Its
    // bytes are never read here, and no reference to them is made.
    unsafe {
        let made = ffi::PyByteArray_FromStringAndSize(std::ptr::null(), size);
        Ok(Bound::from_owned_ptr_or_err(py, made)?.cast_into_unchecked())
    }
}

/// A new bytearray that `fill` writes whole. Unlike `PyByteArray::new_with` it is not filled with zeros before, which
/// would be a second pass over new pages.
pub fn written<'py>(
    py: Python<'py>,
    length: usize,
    fill: impl FnOnce(&mut [u8]) -> PyResult<()>,
) -> PyResult<Bound<'py, PyByteArray>> {
    let made = untouched(py, length)?;
    // SAFETY: nobody else has this object yet, so nothing resizes it or looks at it. Its memory is the interpreter's, of
    // which the compiler knows no state: any value of a byte is valid. The loops only write to it. If `fill` fails, the
    // object is dropped, and no byte of it is seen.
    fill(unsafe { made.as_bytes_mut() })?;
    Ok(made)
}

/// The bytes of these numbers as a new Python object.
pub fn packed<'py, const N: usize>(
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

/// The bytes of a bytearray that only this module has.
#[cfg(unix)]
#[allow(clippy::mut_from_ref)] // the object owns its memory; a reference to it is not a reference to its bytes
pub fn inside<'a>(memory: &'a Bound<'_, PyByteArray>) -> &'a mut [u8] {
    // SAFETY: the caller has made this object and given it to nobody, so nothing resizes it or looks at it, and the
    // caller uses one such slice at a time. Its memory is the interpreter's, see `written`.
    unsafe { memory.as_bytes_mut() }
}

/// The socket of a descriptor that the caller gives away; None for a number that is no descriptor.
#[cfg(unix)]
pub fn owned_socket(descriptor: std::os::fd::RawFd) -> Option<std::net::TcpStream> {
    use std::os::fd::FromRawFd;
    // SAFETY: the caller has detached the descriptor from its Python object, so that it has one owner, this value.
    (descriptor >= 0).then(|| unsafe { std::net::TcpStream::from_raw_fd(descriptor) })
}
