//! Records of an open chunk (fencepost.client.producer.chunks). Python decides when to close it.
//!
//! Each method is one step for all threads and signal handlers: it does not run Python code while it changes the rows.

use crate::objects::TupleClass;
use crate::python::{fields_of, times_of, Field};
use crate::rows::{Rows, Value};
use pyo3::exceptions::{PyMemoryError, PyValueError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyDict, PyList, PyType};

/// Larger values are not copied: the copy would cost more than the reference saves.
const COPIED_BYTES: usize = 512;

#[pyclass(module = "fencepost_native")]
pub struct OpenRows {
    chunk: Option<Py<PyAny>>,
    delivery: TupleClass,
    overhead: i64,
    rows: Rows,
    kept: Vec<Py<PyBytes>>,
    left: i64,
    is_closed: bool,
}

impl OpenRows {
    /// Add a record; None if the rows are closed.
    #[inline(always)]
    fn put(&mut self, value: Option<&Bound<'_, PyBytes>>, key: Option<&[u8]>, size: i64) -> PyResult<usize> {
        let bytes = value.map(|value| value.as_bytes());
        let field = match (value, bytes) {
            (Some(value), Some(bytes)) if bytes.len() > COPIED_BYTES && value.is_exact_instance_of::<PyBytes>() => {
                self.kept.try_reserve(1).map_err(|_| no_memory())?;
                self.kept.push(value.clone().unbind());
                Value::Kept(bytes.len(), self.kept.len() - 1)
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
    /// Rows of `chunk` with room for `room` bytes, where a record counts `overhead` bytes beside its key and value.
    /// `take` returns instances of `delivery`, a class of tuples, with the chunk and the row.
    #[new]
    fn new(chunk: Bound<'_, PyAny>, delivery: Bound<'_, PyType>, room: i64, overhead: i64) -> PyResult<Self> {
        Ok(Self {
            chunk: Some(chunk.unbind()),
            delivery: TupleClass::of(&delivery)?,
            overhead,
            rows: Rows::default(),
            kept: Vec::new(),
            left: room,
            is_closed: false,
        })
    }

    /// Add a plain record, and return its delivery. None: it is not plain, or the rows are closed or nearly full.
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
            let row = rows.put(Some(value), key, size)?;
            (row, chunk, rows.delivery.clone_ref(py))
        };
        // A new object may start the collector, which runs any code. So the rows are no longer borrowed here.
        delivery.instance(py, [chunk.into_bound(py), row.into_pyobject(py)?.into_any()]).map(Some)
    }

    /// Add a record of `size` bytes, and return its row, with `extra` as entry of that row in `extras`; None if the rows
    /// are closed.
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
            // An entry of a number in a dictionary: no other code runs, so the row is still the next one.
            extras.set_item(row, extra)?;
        }
        let added = slf.try_borrow_mut()?.put(value, key.map(|key| key.as_bytes()), size);
        if added.is_err() && !extra.is_none() {
            extras.del_item(row)?; // the next record will have this row
        }
        added.map(Some)
    }

    /// Close the rows, and return their number. It may be called again.
    fn close(&mut self) -> usize {
        self.is_closed = true;
        self.rows.len()
    }

    /// Bytes that are left. Negative: the last record took more.
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

    /// Key of each record.
    fn keys<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let mut keys: Vec<Option<Bound<'py, PyBytes>>> = Vec::new();
        keys.try_reserve_exact(self.rows.len()).map_err(|_| no_memory())?;
        keys.extend((0..self.rows.len()).map(|row| self.rows.key(row).map(|key| PyBytes::new(py, key))));
        PyList::new(py, keys)
    }

    /// Partition of each record by its key, among `partitions`; -1 for a record without a key.
    fn partitions<'py>(&self, py: Python<'py>, partitions: i64) -> PyResult<Bound<'py, PyList>> {
        PyList::new(py, self.rows.partitions(crate::python::counted(partitions)?))
    }

    /// Encode like `write_lists`, all rows or the `chosen` ones.
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
        let kept = |index: usize| self.kept.get(index).map(|value| value.bind(py).as_bytes());
        let fields = |place: usize| {
            let row = chosen.as_ref().map_or(place, |chosen| chosen[place]);
            self.rows.fields(row, kept, headers.get(place).and_then(Field::bytes).unwrap_or_default())
        };
        crate::python::batch_of(py, count, fields, &times, None)
    }

    /// Free the memory of the records. The rows must be closed.
    fn release(&mut self) {
        if self.is_closed {
            (self.rows, self.kept, self.chunk) = (Rows::default(), Vec::new(), None);
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
