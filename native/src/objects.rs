//! The border to Python's tuples: instances of classes that are tuples, without a tuple that is copied.

use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyTuple, PyType};

/// A subclass of `tuple`.
pub struct TupleClass(Py<PyType>);

impl TupleClass {
    pub fn of(class: &Bound<'_, PyType>) -> PyResult<Self> {
        if !class.is_subclass_of::<PyTuple>()? {
            return Err(PyTypeError::new_err("a class that is not a tuple"));
        }
        Ok(Self(class.clone().unbind()))
    }

    pub fn clone_ref(&self, py: Python<'_>) -> Self {
        Self(self.0.clone_ref(py))
    }

    pub fn class(&self) -> &Py<PyType> {
        &self.0
    }

    /// A new instance with these items. Its `__new__` and `__init__` do not run.
    #[inline(always)]
    pub fn instance<'py, const N: usize>(
        &self,
        py: Python<'py>,
        items: [Bound<'py, PyAny>; N],
    ) -> PyResult<Bound<'py, PyAny>> {
        // SAFETY: the class is a tuple (`of`), which has the general allocator, and the interpreter is held. The result
        // is a new tuple with N empty places, or null with an exception set.
        let made = unsafe {
            let made = ffi::PyType_GenericAlloc(self.0.as_ptr().cast(), N as ffi::Py_ssize_t);
            Bound::from_owned_ptr_or_err(py, made)?
        };
        for (place, item) in items.into_iter().enumerate() {
            // SAFETY: `made` is a tuple that nobody else has yet, and the function takes the reference to the item, also
            // when it fails. It checks class and place.
            if unsafe { ffi::PyTuple_SetItem(made.as_ptr(), place as ffi::Py_ssize_t, item.into_ptr()) } != 0 {
                return Err(PyErr::fetch(py));
            }
        }
        Ok(made)
    }
}

/// Take an object out of the collector's sight. The caller knows that it is part of no cycle, now and later.
#[inline(always)]
pub fn untrack(object: &Bound<'_, PyAny>) {
    // SAFETY: the pointer is a valid object with the collector's header, as every tuple has. The function does nothing
    // for an object that is not tracked, and so does the destructor of tuples.
    unsafe { ffi::PyObject_GC_UnTrack(object.as_ptr().cast()) }
}
