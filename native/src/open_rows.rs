//! The records of an open chunk (fencepost.client.producer.chunks). Python decides when a chunk closes.
//!
//! Each method is atomic for other threads and signal handlers: it runs no Python code while it changes the rows.

use crate::objects::TupleClass;
use crate::python::{fields_of, times_of, Field};
use crate::rows::{Rows, Value};
use pyo3::exceptions::{PyMemoryError, PyValueError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyDict, PyList, PyType};

/// Largest value that is copied, in bytes. For a larger value, a reference to the Python object is cheaper than the
/// copy.
const COPIED_BYTES: usize = 512;

#[pyclass(module = "fencepost_native")]
pub struct OpenRows {
    chunk: Option<Py<PyAny>>,
    delivery: TupleClass,
    overhead: i64,
    rows: Rows,
    referenced: Vec<Py<PyBytes>>,
    left: i64,
    is_closed: bool,
}

impl OpenRows {
    /// Append a record, and return its row. The rows must be open.
    #[inline(always)]
    fn append(&mut self, value: Option<&Bound<'_, PyBytes>>, key: Option<&[u8]>, size: i64) -> PyResult<usize> {
        let bytes = value.map(|value| value.as_bytes());
        let field = match (value, bytes) {
            (Some(value), Some(bytes)) if bytes.len() > COPIED_BYTES && value.is_exact_instance_of::<PyBytes>() => {
                self.referenced.try_reserve(1).map_err(|_| no_memory())?;
                self.referenced.push(value.clone().unbind());
                Value::Referenced(bytes.len(), self.referenced.len() - 1)
            }
            _ => Value::Copied(bytes),
        };
        let row = self.rows.add(key, field).ok_or_else(no_memory)?;
        self.left = self.left.saturating_sub(size);
        Ok(row)
    }
}

fn no_memory() -> PyErr {
    PyMemoryError::new_err("no memory for a record")
}

#[pymethods]
impl OpenRows {
    /// Args: `chunk` and `delivery`: `take` returns instances of `delivery`, a subclass of tuple, with the chunk and
    /// the row. `room`: capacity in bytes. `overhead`: bytes to count for each record beside its key and value.
    #[new]
    fn new(chunk: Bound<'_, PyAny>, delivery: Bound<'_, PyType>, room: i64, overhead: i64) -> PyResult<Self> {
        Ok(Self {
            chunk: Some(chunk.unbind()),
            delivery: TupleClass::of(&delivery)?,
            overhead,
            rows: Rows::default(),
            referenced: Vec::new(),
            left: room,
            is_closed: false,
        })
    }

    /// Append a record of bytes without headers, and return its delivery. Returns None if the key or the value is of
    /// another type, if the rows are closed, or if the record would fill them.
    #[pyo3(signature = (value, key, /))]
    fn take<'py>(
        slf: &Bound<'py, Self>,
        value: &Bound<'py, PyAny>,
        key: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let py = slf.py();
        let Ok(value) = value.cast_exact::<PyBytes>() else { return Ok(None) };
        let key = match key.cast_exact::<PyBytes>() {
            Ok(bytes) => Some(bytes.as_bytes()),
            Err(_) if key.is_none() => None,
            Err(_) => return Ok(None),
        };
        let (row, chunk, delivery) = {
            let mut rows = slf.try_borrow_mut()?;
            let bytes = value.as_bytes().len().saturating_add(key.map_or(0, <[u8]>::len));
            let size = i64::try_from(bytes).unwrap_or(i64::MAX).saturating_add(rows.overhead);
            let Some(chunk) = rows.chunk.as_ref().map(|chunk| chunk.clone_ref(py)) else { return Ok(None) };
            if rows.is_closed || size >= rows.left {
                return Ok(None);
            }
            let row = rows.append(Some(value), key, size)?;
            (row, chunk, rows.delivery.clone_ref(py))
        };
        // A new object may start the garbage collector, which can run any Python code. The borrow of the rows has ended
        // above.
        delivery.instance(py, [chunk.into_bound(py), row.into_pyobject(py)?.into_any()]).map(Some)
    }

    /// Append a record of `size` bytes, store `extra` under its row in `extras`, and return the row. Returns None if
    /// the rows are closed. Nothing is stored if `extra` is None.
    #[pyo3(signature = (value, key, size, extras, extra, /))]
    fn add(
        slf: &Bound<'_, Self>,
        value: Option<&Bound<'_, PyBytes>>,
        key: Option<&Bound<'_, PyBytes>>,
        size: i64,
        extras: &Bound<'_, PyDict>,
        extra: &Bound<'_, PyAny>,
    ) -> PyResult<Option<usize>> {
        let row = {
            let rows = slf.try_borrow()?;
            if rows.is_closed {
                return Ok(None);
            }
            rows.rows.len()
        };
        if !extra.is_none() {
            // An integer key in a dictionary runs no Python code, so the next record still gets this row.
            extras.set_item(row, extra)?;
        }
        let added = slf.try_borrow_mut()?.append(value, key.map(|key| key.as_bytes()), size);
        if added.is_err() && !extra.is_none() {
            extras.del_item(row)?; // the next record gets this row
        }
        added.map(Some)
    }

    /// Close the rows, and return their number. Closing twice is allowed.
    fn close(&mut self) -> usize {
        self.is_closed = true;
        self.rows.len()
    }

    /// Capacity that is left, in bytes. Negative if the last record was larger than the rest.
    #[getter]
    fn left(&self) -> i64 {
        self.left
    }

    /// True if any record has a key.
    #[getter]
    fn has_keys(&self) -> bool {
        self.rows.has_keys()
    }

    fn __len__(&self) -> usize {
        self.rows.len()
    }

    /// The key of each record, None for a null key.
    fn keys<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let mut keys: Vec<Option<Bound<'py, PyBytes>>> = Vec::new();
        keys.try_reserve_exact(self.rows.len()).map_err(|_| no_memory())?;
        keys.extend((0..self.rows.len()).map(|row| self.rows.key(row).map(|key| PyBytes::new(py, key))));
        PyList::new(py, keys)
    }

    /// The partition of each record by its key, among `partitions`; -1 for a record without a key.
    fn partitions<'py>(&self, py: Python<'py>, partitions: i64) -> PyResult<Bound<'py, PyList>> {
        PyList::new(py, self.rows.partitions(crate::python::partition_count(partitions)?))
    }

    /// Encode all rows, or only the `chosen` ones, as `write_lists` does.
    #[pyo3(signature = (chosen, timestamps, headers, /))]
    fn write<'py>(
        &self,
        py: Python<'py>,
        chosen: Option<Vec<usize>>,
        timestamps: Bound<'py, PyAny>,
        headers: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyByteArray>> {
        let count = chosen.as_ref().map_or(self.rows.len(), Vec::len);
        if chosen.as_ref().is_some_and(|chosen| chosen.iter().any(|row| *row >= self.rows.len())) {
            return Err(PyValueError::new_err("rows that do not exist"));
        }
        let times = times_of(&timestamps, count)?;
        let headers = fields_of(headers.as_ref(), count)?;
        let referenced = |index: usize| self.referenced.get(index).map(|value| value.bind(py).as_bytes());
        let fields = |index: usize| {
            let row = chosen.as_ref().map_or(index, |chosen| chosen[index]);
            self.rows.fields(row, referenced, headers.get(index).and_then(Field::bytes).unwrap_or_default())
        };
        crate::python::encode_batch(py, count, fields, &times, None)
    }

    /// Free the memory of the records. Does nothing while the rows are open.
    fn release(&mut self) {
        if self.is_closed {
            (self.rows, self.referenced, self.chunk) = (Rows::default(), Vec::new(), None);
        }
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.chunk)?;
        visit.call(self.delivery.class())
    }

    fn __clear__(&mut self) {
        self.chunk = None;
    }
}
