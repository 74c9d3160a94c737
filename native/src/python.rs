//! Functions of the Python module.
//!
//! The functions are stateless; streams.rs and open_rows.rs hold the state of connections and of open chunks. A
//! function reads buffers, and returns numbers and new objects. It reports malformed input by a code (records.rs) or
//! None, never by a panic. A column of numbers is a buffer of native 32-bit or 64-bit integers. A column of byte
//! strings is a tuple (blob, starts, lengths), see `records::Strings`.
//!
//! Work on a large buffer runs without the interpreter lock. The caller must not write to a buffer during a call.

use crate::batch::{Header, HEADER_BYTES, MAGIC};
use crate::buffers::{bytes_of_numbers, new_bytearray, uninitialized, Input};
use crate::fetch::ReadOptions;
use crate::numbers::{Int32s, Int64s};
use crate::objects::{untrack, TupleClass};
use crate::produce::Topic;
use crate::records::{Cursors, Description, Fields, HeaderSource, RecordError, Source, Strings};
use crate::{fetch, hashes, produce, records};
use pyo3::exceptions::{PyMemoryError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyDict, PyInt, PyList, PySlice, PyString, PyTuple, PyType};
use std::collections::HashMap;
use std::convert::Infallible;

/// Smallest work, in bytes, that runs without the interpreter lock. Below it, releasing the lock takes longer than it
/// saves.
const LARGE_BYTES: usize = 64 * 1024;

type Any<'py> = Bound<'py, PyAny>;
type ColumnBuffers<'py> = (Any<'py>, Any<'py>, Any<'py>);

/// Run `work`, which handles `size` bytes. Release the interpreter lock meanwhile if they are many.
pub fn without_lock<T: Send>(py: Python<'_>, size: usize, work: impl FnOnce() -> T + Send) -> T {
    if size < LARGE_BYTES {
        return work();
    }
    py.detach(work)
}

fn code_and_row(error: Option<RecordError>) -> (u8, usize) {
    error.map_or((records::OK, 0), |error| (error.code, error.row))
}

fn int64s(input: &Input) -> PyResult<Int64s<'_>> {
    Int64s::of(input.bytes()).ok_or_else(|| PyValueError::new_err("a column of int64 that ends within a number"))
}

fn int32s(input: &Input) -> PyResult<Int32s<'_>> {
    Int32s::of(input.bytes()).ok_or_else(|| PyValueError::new_err("a column of int32 that ends within a number"))
}

/// The three buffers of a column of byte strings.
struct Column {
    blob: Input,
    starts: Input,
    lengths: Input,
}

impl Column {
    fn of(buffers: &ColumnBuffers<'_>) -> PyResult<Self> {
        Ok(Self { blob: Input::of(&buffers.0)?, starts: Input::of(&buffers.1)?, lengths: Input::of(&buffers.2)? })
    }

    /// The column as strings. Each buffer must have `rows` entries (None: any number), or be empty if all strings are
    /// null. `starts` may also be empty unless `needs_starts` is true.
    fn strings(&self, rows: Option<usize>, needs_starts: bool) -> PyResult<Strings<'_>> {
        let (starts, lengths) = (int64s(&self.starts)?, int32s(&self.lengths)?);
        let wanted = rows.filter(|_| !lengths.is_empty()).unwrap_or(lengths.len());
        if lengths.len() != wanted || (starts.len() != wanted && (needs_starts || !starts.is_empty())) {
            return Err(PyValueError::new_err("a column of byte strings with starts or lengths for other rows"));
        }
        Ok(Strings { blob: self.blob.bytes(), starts, lengths })
    }
}

/// One byte string of a Python sequence.
pub enum Field<'py> {
    Null,
    Bytes(Bound<'py, PyBytes>),
    Buffer(Input),
}

impl<'py> Field<'py> {
    fn of(object: Any<'py>) -> PyResult<Self> {
        match object.cast_into::<PyBytes>() {
            Ok(bytes) => Ok(Self::Bytes(bytes)),
            Err(other) => {
                let object = other.into_inner();
                Ok(if object.is_none() { Self::Null } else { Self::Buffer(Input::of(&object)?) })
            }
        }
    }

    #[inline(always)]
    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Null => None,
            Self::Bytes(bytes) => Some(bytes.as_bytes()),
            Self::Buffer(input) => Some(input.bytes()),
        }
    }
}

/// The items of a Python sequence, which must have `rows` byte strings or None. Without a sequence there are no items.
pub fn fields_of<'py>(sequence: Option<&Any<'py>>, rows: usize) -> PyResult<Vec<Field<'py>>> {
    let mut fields = Vec::new();
    let Some(sequence) = sequence else { return Ok(fields) };
    if sequence.len()? != rows {
        return Err(PyValueError::new_err("columns of different lengths"));
    }
    fields.try_reserve_exact(rows).map_err(|_| PyMemoryError::new_err("too many records"))?;
    if let Ok(list) = sequence.cast::<PyList>() {
        for item in list.iter().take(rows) {
            fields.push(Field::of(item)?);
        }
    } else {
        for item in sequence.try_iter()?.take(rows) {
            fields.push(Field::of(item?)?);
        }
    }
    if fields.len() != rows {
        return Err(PyValueError::new_err("a column that changes while it is read"));
    }
    Ok(fields)
}

// ---- reading

/// Check the records section of a batch.
///
/// Returns (code, row, smallest timestamp, largest timestamp, first row without a key).
#[pyfunction]
fn check_records(
    py: Python<'_>,
    section: Any<'_>,
    count: i64,
    base_timestamp: i64,
) -> PyResult<(u8, usize, i64, i64, i64)> {
    let section = Input::of(&section)?;
    let bytes = section.bytes();
    Ok(match without_lock(py, bytes.len(), || records::check(bytes, count, base_timestamp)) {
        Ok(found) => (records::OK, 0, found.smallest, found.largest, found.without_key),
        Err(error) => (error.code, error.row, -1, -1, -1),
    })
}

/// Find the first record whose timestamp is in a range; see `records::find`.
///
/// Returns (code, timestamp, offset delta or -1).
#[pyfunction]
fn find_timestamp(
    py: Python<'_>,
    section: Any<'_>,
    count: i64,
    base_timestamp: i64,
    wanted: i64,
    most: i64,
    from_delta: i64,
) -> PyResult<(u8, i64, i64)> {
    let section = Input::of(&section)?;
    let bytes = section.bytes();
    let found =
        without_lock(py, bytes.len(), || records::find(bytes, count, base_timestamp, wanted, most, from_delta.max(0)));
    Ok(match found {
        Ok(Some((timestamp, delta))) => (records::OK, timestamp, delta),
        Ok(None) => (records::OK, 0, -1),
        Err(code) => (code, 0, -1),
    })
}

/// Decode the records of batches into columns; see `records::decode`.
///
/// Returns (number of records, code, index of the batch with an error, columns in one buffer).
#[pyfunction]
fn decode_records<'py>(
    py: Python<'py>,
    blob: Any<'py>,
    batches: Vec<Description>,
    first_offset: i64,
) -> PyResult<(usize, u8, usize, Bound<'py, PyByteArray>)> {
    let blob = Input::of(&blob)?;
    let bytes = blob.bytes();
    // Decode only the batches before the first one whose position or count is impossible.
    let (sound, invalid) = match records::capacity(bytes, &batches) {
        Ok(_) => (&batches[..], None),
        Err(error) => (&batches[..error.row], Some(error)),
    };
    let rows = records::capacity(bytes, sound).unwrap_or(0);
    let size = rows.checked_mul(records::COLUMN_BYTES).ok_or_else(|| PyMemoryError::new_err("too many records"))?;
    let (mut found, mut error) = (0, None);
    let columns = new_bytearray(py, size, |out| {
        (found, error) = without_lock(py, bytes.len(), || records::decode(bytes, sound, first_offset, out));
        Ok(())
    })?;
    let (code, batch) = code_and_row(error.or(invalid));
    Ok((found, code, batch, columns))
}

/// Decode the batches of one partition in a Fetch response.
///
/// Returns (number of records, columns, next offset, size of the columns in bytes, leader epochs); see
/// `fetch::Batches`. Returns None if a batch is compressed, damaged, too large or unusual.
#[pyfunction]
#[allow(clippy::type_complexity)]
fn decode_fetched_batches<'py>(
    py: Python<'py>,
    batches: Any<'py>,
    first_offset: i64,
    checks_markers: bool,
    checks_crc: bool,
    max_batch_bytes: i64,
    max_earlier_bytes: i64,
) -> PyResult<Option<(usize, Bound<'py, PyByteArray>, i64, i64, Vec<(i64, i32)>)>> {
    let batches = Input::of(&batches)?;
    let bytes = batches.bytes();
    let options = ReadOptions { first_offset, checks_markers, checks_crc, max_batch_bytes, max_earlier_bytes };
    let Some(found) = without_lock(py, bytes.len(), || fetch::scan(bytes, &options)) else { return Ok(None) };
    let Ok(rows) = records::capacity(bytes, &found.batches) else { return Ok(None) };
    let size = rows.checked_mul(records::COLUMN_BYTES).ok_or_else(|| PyMemoryError::new_err("too many records"))?;
    let (mut decoded, mut error) = (0, None);
    let columns = new_bytearray(py, size, |out| {
        (decoded, error) = without_lock(py, bytes.len(), || records::decode(bytes, &found.batches, first_offset, out));
        Ok(())
    })?;
    Ok(error.is_none().then_some((decoded, columns, found.next_offset, found.column_bytes, found.epochs)))
}

/// Copy byte strings out of a blob, as a list of `bytes` or None.
#[pyfunction]
fn cut<'py>(py: Python<'py>, blob: Any<'py>, starts: Any<'py>, lengths: Any<'py>) -> PyResult<Bound<'py, PyList>> {
    let column = Column::of(&(blob, starts, lengths))?;
    let strings = column.strings(None, true)?;
    let mut result: Vec<Option<Bound<'py, PyBytes>>> = Vec::new();
    result.try_reserve_exact(strings.lengths.len()).map_err(|_| PyMemoryError::new_err("too many strings"))?;
    for row in 0..strings.lengths.len() {
        let string = strings
            .cut(strings.starts.get(row), strings.lengths.get(row))
            .map_err(|_| PyValueError::new_err(format!("string {row} lies outside its blob")))?;
        result.push(string.map(|bytes| PyBytes::new(py, bytes)));
    }
    PyList::new(py, result)
}

/// Find the headers in encoded header sections.
///
/// Returns (code, row, bounds, key starts, key lengths, value starts, value lengths). `bounds` has the number of
/// headers before each row, and then the total.
#[pyfunction]
#[allow(clippy::type_complexity)]
fn decode_headers<'py>(
    py: Python<'py>,
    sections: ColumnBuffers<'py>,
) -> PyResult<(
    u8,
    usize,
    Bound<'py, PyBytes>,
    Bound<'py, PyBytes>,
    Bound<'py, PyBytes>,
    Bound<'py, PyBytes>,
    Bound<'py, PyBytes>,
)> {
    let column = Column::of(&sections)?;
    let strings = column.strings(None, true)?;
    let (spans, ends, error) = match without_lock(py, strings.blob.len(), || records::decode_headers(strings)) {
        Ok((spans, ends)) => (spans, ends, None),
        Err(error) => (Vec::new(), Vec::new(), Some(error)),
    };
    let (code, row) = code_and_row(error);
    let bounds = std::iter::once(0).chain(ends.iter().copied());
    Ok((
        code,
        row,
        bytes_of_numbers(py, ends.len() + 1, bounds.map(i64::to_ne_bytes))?,
        bytes_of_numbers(py, spans.len(), spans.iter().map(|span| span.0.to_ne_bytes()))?,
        bytes_of_numbers(py, spans.len(), spans.iter().map(|span| span.1.to_ne_bytes()))?,
        bytes_of_numbers(py, spans.len(), spans.iter().map(|span| span.2.to_ne_bytes()))?,
        bytes_of_numbers(py, spans.len(), spans.iter().map(|span| span.3.to_ne_bytes()))?,
    ))
}

/// Create the records of a partition as instances of `class`, a subclass of tuple with the fields topic, partition,
/// offset, timestamp, key, value, headers, timestamp type, leader epoch.
///
/// `headers` is a list with the headers of each record, or None if no record has any. `epochs` is one number for all
/// records, or a list. A record without headers refers only to strings and numbers. It is never part of a reference
/// cycle, so the garbage collector need not track it.
#[pyfunction]
#[allow(clippy::too_many_arguments)]
fn make_records<'py>(
    py: Python<'py>,
    class: Bound<'py, PyType>,
    topic: Any<'py>,
    partition: Any<'py>,
    offsets: Any<'py>,
    timestamps: Any<'py>,
    blob: Any<'py>,
    keys: (Any<'py>, Any<'py>),
    values: (Any<'py>, Any<'py>),
    headers: Option<Bound<'py, PyList>>,
    timestamp_type: Any<'py>,
    epochs: Any<'py>,
) -> PyResult<Bound<'py, PyList>> {
    let class = TupleClass::of(&class)?;
    let (offsets, timestamps) = (Input::of(&offsets)?, Input::of(&timestamps)?);
    let (offsets, times) = (int64s(&offsets)?, int64s(&timestamps)?);
    let rows = offsets.len();
    let columns = (Column::of(&(blob.clone(), keys.0, keys.1))?, Column::of(&(blob, values.0, values.1))?);
    let (keys, values) = (columns.0.strings(None, true)?, columns.1.strings(None, true)?);
    let many_epochs = epochs.cast::<PyList>().ok();
    let counts = [times.len(), keys.lengths.len(), values.lengths.len()];
    let lists = [headers.as_ref(), many_epochs];
    if counts.iter().any(|count| *count != rows) || lists.iter().flatten().any(|list| list.len() != rows) {
        return Err(PyValueError::new_err("columns of different lengths"));
    }
    let mut result: Vec<Any<'py>> = Vec::new();
    result.try_reserve_exact(rows).map_err(|_| PyMemoryError::new_err("too many records"))?;
    let outside = |row: usize| PyValueError::new_err(format!("record {row} lies outside its blob"));
    let none = py.None().into_bound(py);
    let no_headers = PyTuple::empty(py).into_any();
    let is_simple = headers.is_none() && topic.is_exact_instance_of::<PyString>();
    let mut time = (times.get(0), times.get(0).into_pyobject(py)?.into_any());
    for row in 0..rows {
        let bytes = |column: Strings<'_>| -> PyResult<Any<'py>> {
            let string = column.cut(column.starts.get(row), column.lengths.get(row)).map_err(|_| outside(row))?;
            Ok(string.map_or_else(|| none.clone(), |bytes| PyBytes::new(py, bytes).into_any()))
        };
        if times.get(row) != time.0 {
            time = (times.get(row), times.get(row).into_pyobject(py)?.into_any());
        }
        let record = class.instance(
            py,
            [
                topic.clone(),
                partition.clone(),
                offsets.get(row).into_pyobject(py)?.into_any(),
                time.1.clone(),
                bytes(keys)?,
                bytes(values)?,
                match &headers {
                    Some(list) => list.get_item(row)?,
                    None => no_headers.clone(),
                },
                timestamp_type.clone(),
                match many_epochs {
                    Some(list) => list.get_item(row)?,
                    None => epochs.clone(),
                },
            ],
        )?;
        if is_simple {
            untrack(&record);
        }
        result.push(record);
    }
    PyList::new(py, result)
}

// ---- writing

/// Encode records from sequences, as a batch without its header: the first bytes are left free for it.
///
/// `timestamps` is one number for all records, or a sequence with one per record. `headers` are encoded sections.
#[pyfunction]
fn write_lists<'py>(
    py: Python<'py>,
    rows: usize,
    keys: Option<Any<'py>>,
    values: Option<Any<'py>>,
    timestamps: Any<'py>,
    headers: Option<Any<'py>>,
) -> PyResult<Bound<'py, PyByteArray>> {
    let times = times_of(&timestamps, rows)?;
    let (keys, values) = (fields_of(keys.as_ref(), rows)?, fields_of(values.as_ref(), rows)?);
    let headers = fields_of(headers.as_ref(), rows)?;
    let fields = |row: usize| Fields {
        key: keys.get(row).and_then(Field::bytes),
        value: values.get(row).and_then(Field::bytes),
        headers: headers.get(row).and_then(Field::bytes).unwrap_or_default(),
    };
    encode_batch(py, rows, fields, &times, None)
}

/// Encode pairs (key, value) as a whole batch, with one timestamp and without sequence numbers.
#[pyfunction]
#[allow(clippy::too_many_arguments)]
fn write_pairs<'py>(
    py: Python<'py>,
    pairs: Vec<(Any<'py>, Any<'py>)>,
    timestamp: i64,
    base_offset: i64,
    leader_epoch: i32,
    attributes: i16,
    producer_id: i64,
    producer_epoch: i16,
) -> PyResult<Bound<'py, PyByteArray>> {
    let rows = pairs.len();
    let count = i32::try_from(rows).map_err(|_| PyMemoryError::new_err("too many records"))?;
    let fields =
        pairs.into_iter().map(|(key, value)| Ok((Field::of(key)?, Field::of(value)?))).collect::<PyResult<Vec<_>>>()?;
    let header = Header {
        base_offset,
        batch_length: 0,
        leader_epoch,
        magic: MAGIC,
        crc: 0,
        attributes,
        last_offset_delta: count - 1,
        base_timestamp: timestamp,
        max_timestamp: timestamp,
        producer_id,
        producer_epoch,
        base_sequence: -1,
        count,
    };
    let fields = |row: usize| Fields {
        key: fields.get(row).and_then(|(key, _)| key.bytes()),
        value: fields.get(row).and_then(|(_, value)| value.bytes()),
        headers: &[],
    };
    encode_batch(py, rows, fields, &[timestamp], Some(header))
}

/// Timestamps of `rows` rows, from one number for all or a sequence with one per row.
pub fn times_of(timestamps: &Any<'_>, rows: usize) -> PyResult<Vec<i64>> {
    let times = match timestamps.extract::<i64>() {
        Ok(one) => vec![one],
        Err(_) => timestamps.extract::<Vec<i64>>()?,
    };
    if times.len() != 1 && times.len() != rows {
        return Err(PyValueError::new_err("columns of different lengths"));
    }
    Ok(times)
}

/// Encode rows behind their batch's header, or behind free bytes for it.
pub fn encode_batch<'py, 'a>(
    py: Python<'py>,
    rows: usize,
    fields: impl Fn(usize) -> Fields<'a>,
    times: &[i64],
    header: Option<Header>,
) -> PyResult<Bound<'py, PyByteArray>> {
    let refused = |error: RecordError| PyValueError::new_err(format!("record {}: larger than 2 GiB", error.row));
    let section = records::measure_rows(rows, &fields, times).map_err(refused)?;
    if section > i32::MAX as usize - HEADER_BYTES {
        let size = section.saturating_add(HEADER_BYTES);
        return Err(PyValueError::new_err(format!("a batch of {size} bytes; at most 2 GiB are possible")));
    }
    new_bytearray(py, HEADER_BYTES + section, |out| {
        records::write_rows(rows, &fields, times, &mut out[HEADER_BYTES..]).map_err(refused)?;
        if header.is_some_and(|header| header.seal(out).is_none()) {
            return Err(PyValueError::new_err("a batch without room for its header"));
        }
        Ok(())
    })
}

/// The buffers of the columns to encode.
struct Buffers {
    rows: usize,
    keys: Column,
    values: Column,
    headers: Column,
    timestamps: Input,
}

/// Number of rows, keys, values, headers, timestamps.
type Columns<'py> = (usize, ColumnBuffers<'py>, ColumnBuffers<'py>, ColumnBuffers<'py>, Any<'py>);

impl Buffers {
    fn of(columns: &Columns<'_>) -> PyResult<Self> {
        let (rows, keys, values, headers, timestamps) = columns;
        Ok(Self {
            rows: *rows,
            keys: Column::of(keys)?,
            values: Column::of(values)?,
            headers: Column::of(headers)?,
            timestamps: Input::of(timestamps)?,
        })
    }

    fn source(&self) -> PyResult<Source<'_>> {
        let timestamps = int64s(&self.timestamps)?;
        if timestamps.len() != 1 && timestamps.len() != self.rows {
            return Err(PyValueError::new_err("timestamps for other rows"));
        }
        let rows = Some(self.rows);
        Ok(Source {
            rows: self.rows,
            keys: self.keys.strings(rows, false)?,
            values: self.values.strings(rows, false)?,
            headers: self.headers.strings(rows, false)?,
            timestamps,
        })
    }
}

/// Divide columns into batches of at most `max_bytes`.
///
/// Returns (code, row, batches). A batch is (index after its last row, size of its records in bytes).
#[pyfunction]
#[allow(clippy::type_complexity)]
fn plan_batches(py: Python<'_>, columns: Columns<'_>, max_bytes: i64) -> PyResult<(u8, usize, Vec<(usize, usize)>)> {
    let buffers = Buffers::of(&columns)?;
    let source = buffers.source()?;
    Ok(match without_lock(py, source.values.blob.len(), || source.plan(max_bytes)) {
        Ok(batches) => (records::OK, 0, batches),
        Err(error) => (error.code, error.row, Vec::new()),
    })
}

/// Encode one planned batch.
///
/// Returns (code, row, free bytes for the header and the records, cursors for the next batch).
#[pyfunction]
fn write_records<'py>(
    py: Python<'py>,
    columns: Columns<'py>,
    first: usize,
    end: usize,
    size: usize,
    cursors: Cursors,
) -> PyResult<(u8, usize, Bound<'py, PyByteArray>, Cursors)> {
    let buffers = Buffers::of(&columns)?;
    let source = buffers.source()?;
    if first > end || end > source.rows {
        return Err(PyValueError::new_err("rows that the columns do not have"));
    }
    let batch_bytes = size.checked_add(HEADER_BYTES).ok_or_else(|| PyMemoryError::new_err("too large"))?;
    let (mut next_cursors, mut error) = (cursors, None);
    let batch = new_bytearray(py, batch_bytes, |out| {
        let out = &mut out[HEADER_BYTES..];
        match without_lock(py, out.len(), || source.write(first, end, cursors, out)) {
            Ok(next) => next_cursors = next,
            Err(found) => error = Some(found),
        }
        Ok(())
    })?;
    let (code, row) = code_and_row(error);
    Ok((code, row, batch, next_cursors))
}

/// Copy the byte strings of several columns into one buffer.
///
/// Returns (code, row, bounds, bytes).
#[pyfunction]
fn gather<'py>(
    py: Python<'py>,
    columns: Vec<ColumnBuffers<'py>>,
) -> PyResult<(u8, usize, Bound<'py, PyByteArray>, Bound<'py, PyByteArray>)> {
    let columns = columns.iter().map(Column::of).collect::<PyResult<Vec<_>>>()?;
    let strings = columns.iter().map(|column| column.strings(None, true)).collect::<PyResult<Vec<_>>>()?;
    let rows = strings.iter().map(|column| column.lengths.len()).sum::<usize>();
    // The sum of the lengths can be larger than the blob, because strings may overlap. So check all spans before
    // allocating.
    let total = match records::total_length(&strings) {
        Ok(total) => total,
        Err(error) => return Ok((error.code, error.row, PyByteArray::new(py, &[]), PyByteArray::new(py, &[]))),
    };
    let size = rows.checked_add(1).and_then(|count| count.checked_mul(8));
    let size = size.ok_or_else(|| PyMemoryError::new_err("too many strings"))?;
    let mut error = None;
    let mut copied = None;
    let bounds = new_bytearray(py, size, |bounds| {
        copied = Some(new_bytearray(py, total, |out| {
            error = without_lock(py, total, || records::gather(&strings, bounds, out).err());
            Ok(())
        })?);
        Ok(())
    })?;
    let (code, row) = code_and_row(error);
    Ok((code, row, bounds, copied.unwrap_or_else(|| PyByteArray::new(py, &[]))))
}

/// Encode the headers of rows. A row has `counts` headers, the first of them at index `firsts`.
///
/// Returns (code, row, size of each row's section, sections in one buffer).
#[pyfunction]
fn encode_headers<'py>(
    py: Python<'py>,
    firsts: Any<'py>,
    counts: Any<'py>,
    keys: ColumnBuffers<'py>,
    values: ColumnBuffers<'py>,
) -> PyResult<(u8, usize, Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
    let (firsts, counts) = (Input::of(&firsts)?, Input::of(&counts)?);
    let (keys, values) = (Column::of(&keys)?, Column::of(&values)?);
    let source = HeaderSource {
        firsts: int64s(&firsts)?,
        counts: int32s(&counts)?,
        keys: keys.strings(None, true)?,
        values: values.strings(None, true)?,
    };
    if source.firsts.len() != source.counts.len() {
        return Err(PyValueError::new_err("headers for other rows"));
    }
    let (sizes, mut error) = match source.measure() {
        Ok(sizes) => (sizes, None),
        Err(error) => (Vec::new(), Some(error)),
    };
    let total = sizes.iter().map(|size| *size as usize).sum();
    let sections = PyBytes::new_with(py, total, |out| {
        error = error.or(source.write(&sizes, out).err());
        Ok(())
    })?;
    let (code, row) = code_and_row(error);
    Ok((code, row, bytes_of_numbers(py, sizes.len(), sizes.iter().map(|size| size.to_ne_bytes()))?, sections))
}

// ---- hashing

pub fn partition_count(partitions: i64) -> PyResult<u32> {
    u32::try_from(partitions)
        .ok()
        .filter(|count| (1..=i32::MAX as u32).contains(count))
        .ok_or_else(|| PyValueError::new_err(format!("{partitions} partitions")))
}

/// Choose the partition of each key in a sequence.
#[pyfunction]
fn partitions_of_keys<'py>(py: Python<'py>, keys: Any<'py>, partitions: i64) -> PyResult<Bound<'py, PyList>> {
    let partitions = partition_count(partitions)?;
    let fields = fields_of(Some(&keys), keys.len()?)?;
    let chosen = fields.iter().map(|key| hashes::partition(key.bytes().unwrap_or_default(), partitions));
    PyList::new(py, chosen)
}

/// Group rows by partition, in order. `chosen` has the partition of each row.
#[pyfunction]
fn split_rows<'py>(py: Python<'py>, chosen: Vec<i64>) -> PyResult<Bound<'py, PyDict>> {
    let mut rows_of: HashMap<i64, Vec<usize>> = HashMap::new();
    for (row, partition) in chosen.iter().enumerate() {
        rows_of.entry(*partition).or_default().push(row);
    }
    let found = PyDict::new(py);
    for (partition, rows) in rows_of {
        found.set_item(partition, PyList::new(py, rows)?)?;
    }
    Ok(found)
}

/// Call `each` with the bytes of `blob` between every two consecutive bounds.
fn spans<'a>(blob: &'a [u8], bounds: impl Iterator<Item = i64>, mut each: impl FnMut(&'a [u8])) -> PyResult<()> {
    let mut start = None;
    for bound in bounds {
        let end = usize::try_from(bound).map_err(|_| PyValueError::new_err("spans lie outside their blob"))?;
        if let Some(start) = start {
            each(blob.get(start..end).ok_or_else(|| PyValueError::new_err("spans lie outside their blob"))?);
        }
        start = Some(end);
    }
    Ok(())
}

/// Choose the partition (int32) of each key in a blob. The keys follow each other; `ends` are their end positions.
#[pyfunction]
fn partitions_of_blob<'py>(
    py: Python<'py>,
    blob: Any<'py>,
    ends: Any<'py>,
    partitions: i64,
) -> PyResult<Bound<'py, PyByteArray>> {
    let partitions = partition_count(partitions)?;
    let (blob, ends) = (Input::of(&blob)?, Input::of(&ends)?);
    let ends = int64s(&ends)?;
    new_bytearray(py, ends.len() * 4, |out| {
        let mut slots = out.chunks_exact_mut(4);
        let bounds = std::iter::once(0).chain((0..ends.len()).map(|row| ends.get(row)));
        spans(blob.bytes(), bounds, |key| {
            if let Some(slot) = slots.next() {
                slot.copy_from_slice(&(hashes::partition(key, partitions) as i32).to_ne_bytes());
            }
        })
    })
}

/// Compute the XXH64 hash (uint64) of the bytes of a blob between every two consecutive bounds.
#[pyfunction]
fn xxh64_of_spans<'py>(py: Python<'py>, blob: Any<'py>, bounds: Any<'py>) -> PyResult<Bound<'py, PyByteArray>> {
    let (blob, bounds) = (Input::of(&blob)?, Input::of(&bounds)?);
    let (bytes, bounds) = (blob.bytes(), int64s(&bounds)?);
    new_bytearray(py, bounds.len().saturating_sub(1) * 8, |out| {
        without_lock(py, bytes.len(), || {
            let mut slots = out.chunks_exact_mut(8);
            spans(bytes, (0..bounds.len()).map(|row| bounds.get(row)), |span| {
                if let Some(slot) = slots.next() {
                    slot.copy_from_slice(&hashes::xxh64(span).to_ne_bytes());
                }
            })
        })
    })
}

// ---- requests

/// Subclasses of tuple: request, batch, header, facts about records.
type ProduceClasses<'py> = (Bound<'py, PyType>, Bound<'py, PyType>, Bound<'py, PyType>, Bound<'py, PyType>);

fn number<'py, T>(py: Python<'py>, value: T) -> Any<'py>
where
    T: IntoPyObject<'py, Target = PyInt, Output = Bound<'py, PyInt>, Error = Infallible>,
{
    match value.into_pyobject(py) {
        Ok(result) => result.into_any(),
        Err(never) => match never {},
    }
}

fn text_or_none<'py>(py: Python<'py>, text: Option<&str>) -> Any<'py> {
    text.map_or_else(|| py.None().into_bound(py), |text| PyString::new(py, text).into_any())
}

/// Decode a Produce request into instances of `classes`. Returns None unless it has the common form (produce.rs).
///
/// A request is (version, correlation id, client id, transactional id, acks, timeout in ms, list of batches). A batch
/// is (topic, partition, slice of the frame, header, facts about the records). The topic is its name, or its id as
/// bytes. The facts are None if the records are compressed.
#[pyfunction]
fn decode_produce_request<'py>(
    py: Python<'py>,
    frame: Any<'py>,
    classes: ProduceClasses<'py>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let input = Input::of(&frame)?;
    let bytes = input.bytes();
    let Some(request) = without_lock(py, bytes.len(), || produce::decode_request(bytes)) else { return Ok(None) };
    let (request_class, batch_class) = (TupleClass::of(&classes.0)?, TupleClass::of(&classes.1)?);
    let (header_class, facts_class) = (TupleClass::of(&classes.2)?, TupleClass::of(&classes.3)?);
    let slice = py.get_type::<PySlice>(); // PySlice::new leaks references to its numbers
    let batches = PyList::empty(py);
    for batch in &request.batches {
        let topic = match batch.topic {
            Topic::Name(name) => PyString::new(py, name).into_any(),
            Topic::Id(id) => PyBytes::new(py, &id).into_any(),
        };
        let records = frame.get_item(slice.call1((batch.start, batch.end))?)?;
        let read = &batch.header;
        let header = header_class.instance(
            py,
            [
                number(py, read.base_offset),
                number(py, read.batch_length),
                number(py, read.leader_epoch),
                number(py, read.magic),
                number(py, read.crc),
                number(py, read.attributes),
                number(py, read.last_offset_delta),
                number(py, read.base_timestamp),
                number(py, read.max_timestamp),
                number(py, read.producer_id),
                number(py, read.producer_epoch),
                number(py, read.base_sequence),
                number(py, read.count),
            ],
        )?;
        let facts = match &batch.checked {
            Some(found) => facts_class
                .instance(py, [number(py, found.smallest), number(py, found.largest), number(py, found.without_key)])?,
            None => py.None().into_bound(py),
        };
        batches.append(batch_class.instance(py, [topic, number(py, batch.partition), records, header, facts])?)?;
    }
    let read = [
        number(py, request.version),
        number(py, request.correlation_id),
        text_or_none(py, request.client_id),
        text_or_none(py, request.transactional_id),
        number(py, request.acks),
        number(py, request.timeout_ms),
        batches.into_any(),
    ];
    request_class.instance(py, read).map(Some)
}

/// Encode the response to a Produce request whose batches were all appended, as a frame.
///
/// A result is (topic, partition, base offset, append time in ms or -1, log start offset). The topic is its name, or
/// its id as bytes.
#[pyfunction]
fn encode_produce_response<'py>(
    py: Python<'py>,
    version: i16,
    correlation_id: i32,
    results: Vec<(Any<'py>, i32, i64, i64, i64)>,
) -> PyResult<Bound<'py, PyBytes>> {
    let mut appended = Vec::with_capacity(results.len());
    for (topic, partition, base_offset, append_time_ms, log_start_offset) in &results {
        let topic = match topic.cast::<PyBytes>() {
            Ok(id) => Topic::Id(id.as_bytes().try_into().map_err(|_| PyValueError::new_err("an id has 16 bytes"))?),
            Err(_) => Topic::Name(topic.cast::<PyString>()?.to_str()?),
        };
        appended.push((topic, (*partition, *base_offset, *append_time_ms, *log_start_offset)));
    }
    Ok(PyBytes::new(py, &produce::encode_response(version, correlation_id, &appended)))
}

// ---- memory

/// Create a bytearray of `size` bytes without writing to its memory. The system commits a page on the first write to
/// it.
#[pyfunction]
fn uninitialized_bytes(py: Python<'_>, size: usize) -> PyResult<Bound<'_, PyByteArray>> {
    uninitialized(py, size)
}

#[pymodule]
mod fencepost_native {
    #[pymodule_export]
    const STAMP: &str = env!("FENCEPOST_STAMP");

    #[pymodule_export]
    use crate::open_rows::OpenRows;

    #[pymodule_export]
    use super::{
        check_records, cut, decode_fetched_batches, decode_headers, decode_produce_request, decode_records,
        encode_headers, encode_produce_response, find_timestamp, gather, make_records, partitions_of_blob,
        partitions_of_keys, plan_batches, split_rows, uninitialized_bytes, write_lists, write_pairs, write_records,
        xxh64_of_spans,
    };
    #[cfg(unix)]
    #[pymodule_export]
    use crate::streams::{Stream, Streams};
}
