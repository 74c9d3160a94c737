//! Creates instances of subclasses of `tuple`, without an intermediate tuple that is copied.

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

    /// Create an instance with these items. `__new__` and `__init__` of the class do not run.
    #[inline(always)]
    pub fn instance<'py, const N: usize>(
        &self,
        py: Python<'py>,
        items: [Bound<'py, PyAny>; N],
    ) -> PyResult<Bound<'py, PyAny>> {
        // SAFETY: `of` has checked that the class is a subclass of `tuple`, which uses the general allocator. This
        // thread holds the interpreter lock. The result is a new tuple with N empty slots, or null with an exception
        // set.
        let tuple = unsafe {
            let tuple = ffi::PyType_GenericAlloc(self.0.as_ptr().cast(), N as ffi::Py_ssize_t);
            Bound::from_owned_ptr_or_err(py, tuple)?
        };
        for (index, item) in items.into_iter().enumerate() {
            // SAFETY: no other code has `tuple` yet. PyTuple_SetItem checks the class and the index. It takes ownership
            // of the item, also when it fails.
            if unsafe { ffi::PyTuple_SetItem(tuple.as_ptr(), index as ffi::Py_ssize_t, item.into_ptr()) } != 0 {
                return Err(PyErr::fetch(py));
            }
        }
        Ok(tuple)
    }
}

/// Stop the garbage collector from tracking an object. The caller guarantees that the object never becomes part of a
/// reference cycle.
#[inline(always)]
pub fn untrack(object: &Bound<'_, PyAny>) {
    // SAFETY: the pointer is a valid object with a garbage collector header, as every tuple has. The function does
    // nothing for an object that is not tracked. The destructor of a tuple accepts an untracked object.
    unsafe { ffi::PyObject_GC_UnTrack(object.as_ptr().cast()) }
}
