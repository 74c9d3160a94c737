//! Loops over the bytes of records in batch format v2. The fields of a record are length, attributes, timestamp delta,
//! offset delta, key, value and headers. All numbers are zigzag varints.
//!
//! This is safe Rust over slices. The loops check every position. Sums of numbers from the input are checked, or wrap
//! around.

use crate::batch::HEADER_BYTES;
use crate::numbers::{Int32s, Int64s};

pub type Code = u8;

pub const OK: Code = 0;
pub const BAD_VARINT: Code = 1;
pub const BAD_LENGTH: Code = 2;
pub const BAD_OFFSET: Code = 3;
pub const BAD_HEADERS: Code = 4;
pub const BAD_COUNT: Code = 5;
pub const OUTSIDE_BLOB: Code = 6;
pub const TOO_LARGE: Code = 7;
pub const OUT_OF_BOUNDS: Code = 8;

/// Smallest record: one byte each for the length, the attributes, two deltas, two lengths and the number of headers.
pub const MIN_RECORD_BYTES: usize = 7;
const MAX_BODY_BYTES: usize = i32::MAX as usize;
const VARINT32_BYTES: usize = 5;
const VARINT64_BYTES: usize = 10;

/// An error code, and the index of the record or batch that it concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordError {
    pub code: Code,
    pub row: usize,
}

// ---- numbers

#[inline(always)]
fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

#[inline(always)]
fn size_of(value: i64) -> usize {
    let raw = zigzag(value);
    if raw < 0x80 {
        return 1;
    }
    if raw < 0x4000 {
        return 2;
    }
    (64 - raw.leading_zeros() as usize).div_ceil(7)
}

/// Read a varint of at most `most` bytes at position `at`. Returns its value and the next position.
#[inline(always)]
fn read(bytes: &[u8], at: usize, most: usize) -> Result<(i64, usize), Code> {
    match bytes.get(at) {
        Some(first) if *first < 0x80 => Ok((i64::from(first >> 1) ^ -i64::from(first & 1), at + 1)),
        _ => read_long(bytes, at, most),
    }
}

fn read_long(bytes: &[u8], at: usize, most: usize) -> Result<(i64, usize), Code> {
    let (mut raw, mut shift) = (0u64, 0);
    for (index, byte) in bytes.iter().skip(at).take(most).enumerate() {
        raw |= u64::from(byte & 0x7f) << shift; // `shift` is at most 63, because `most` is at most 10
        if *byte < 0x80 {
            if most == VARINT32_BYTES {
                raw &= 0xffff_ffff;
            }
            return Ok(((raw >> 1) as i64 ^ -((raw & 1) as i64), at + index + 1));
        }
        shift += 7;
    }
    Err(BAD_VARINT)
}

/// Writes into a slice from the front. The caller has computed the size of the output before.
struct Writer<'a> {
    out: &'a mut [u8],
    at: usize,
}

impl Writer<'_> {
    #[inline(always)]
    fn byte(&mut self, byte: u8) {
        self.out[self.at] = byte;
        self.at += 1;
    }

    #[inline(always)]
    fn number(&mut self, value: i64) {
        let mut raw = zigzag(value);
        if (0x80..0x4000).contains(&raw) {
            self.bytes(&[raw as u8 | 0x80, (raw >> 7) as u8]);
            return;
        }
        while raw >= 0x80 {
            self.byte(raw as u8 | 0x80);
            raw >>= 7;
        }
        self.byte(raw as u8);
    }

    #[inline(always)]
    fn bytes(&mut self, bytes: &[u8]) {
        self.out[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }

    #[inline(always)]
    fn string(&mut self, string: Option<&[u8]>) {
        match string {
            None => self.byte(1), // -1
            Some(bytes) => {
                self.number(bytes.len() as i64);
                self.bytes(bytes);
            }
        }
    }

    fn room(&self) -> usize {
        self.out.len() - self.at
    }
}

// ---- reading

struct Span {
    start: usize,
    length: i32, // -1: null
}

impl Span {
    #[inline(always)]
    fn end(&self) -> usize {
        self.start + self.length.max(0) as usize
    }
}

#[inline(always)]
fn read_string(bytes: &[u8], at: usize) -> Result<Span, Code> {
    let (length, start) = read(bytes, at, VARINT32_BYTES)?;
    if length > (bytes.len() - start) as i64 {
        return Err(BAD_LENGTH);
    }
    Ok(Span { start, length: length.max(-1) as i32 })
}

struct Prefix {
    end: usize,
    time_delta: i64,
    offset_delta: i64,
    key_at: usize,
}

#[inline(always)]
fn read_prefix(bytes: &[u8], at: usize) -> Result<Prefix, Code> {
    let (length, body) = read(bytes, at, VARINT32_BYTES)?;
    if length < 1 || length > (bytes.len() - body) as i64 {
        return Err(BAD_LENGTH);
    }
    let end = body + length as usize;
    let record = &bytes[..end];
    let (time_delta, at) = read(record, body + 1, VARINT64_BYTES)?;
    let (offset_delta, key_at) = read(record, at, VARINT32_BYTES)?;
    Ok(Prefix { end, time_delta, offset_delta, key_at })
}

/// Check a header section that ends where `bytes` ends. Returns the number of headers and the position of the first.
fn read_headers(bytes: &[u8], at: usize) -> Result<(i64, usize), Code> {
    let (count, first) = read(bytes, at, VARINT32_BYTES).map_err(|_| BAD_HEADERS)?;
    if count < 0 {
        return Err(BAD_HEADERS);
    }
    let mut at = first;
    for _ in 0..count {
        let key = read_string(bytes, at).map_err(|_| BAD_HEADERS)?;
        if key.length < 0 {
            return Err(BAD_HEADERS);
        }
        at = read_string(bytes, key.end()).map_err(|_| BAD_HEADERS)?.end();
    }
    if at != bytes.len() {
        return Err(BAD_HEADERS);
    }
    Ok((count, first))
}

struct Record {
    prefix: Prefix,
    key: Span,
    value: Span,
    headers_at: usize,
}

#[inline(always)]
fn read_record(bytes: &[u8], at: usize) -> Result<Record, Code> {
    let prefix = read_prefix(bytes, at)?;
    let record = &bytes[..prefix.end];
    let key = read_string(record, prefix.key_at)?;
    let value = read_string(record, key.end())?;
    let headers_at = value.end();
    if record[headers_at..] != [0] {
        read_headers(record, headers_at)?;
    }
    Ok(Record { prefix, key, value, headers_at })
}

/// Facts about a records section. Both timestamps are -1 if there are none. `without_key` is the first row without a
/// key, or -1.
#[derive(Debug, PartialEq, Eq)]
pub struct Checked {
    pub smallest: i64,
    pub largest: i64,
    pub without_key: i64,
}

pub fn check(section: &[u8], count: i64, base_timestamp: i64) -> Result<Checked, RecordError> {
    let (mut smallest, mut largest, mut without_key) = (i64::MAX, -1, -1);
    let mut at = 0;
    for row in 0..count {
        let error = |code| RecordError { code, row: row as usize };
        let record = read_record(section, at).map_err(error)?;
        if record.prefix.offset_delta != row {
            return Err(error(BAD_OFFSET));
        }
        if record.key.length < 0 && without_key < 0 {
            without_key = row;
        }
        let timestamp = base_timestamp.wrapping_add(record.prefix.time_delta);
        largest = largest.max(timestamp);
        if timestamp != -1 {
            smallest = smallest.min(timestamp);
        }
        at = record.prefix.end;
    }
    if at != section.len() {
        return Err(RecordError { code: BAD_COUNT, row: count.max(0) as usize });
    }
    Ok(Checked { smallest: if smallest == i64::MAX { -1 } else { smallest }, largest, without_key })
}

/// Find the first record with an offset delta of at least `from_delta` and wanted <= timestamp <= most. Returns its
/// timestamp and its offset delta.
pub fn find(
    section: &[u8],
    count: i64,
    base_timestamp: i64,
    wanted: i64,
    most: i64,
    from_delta: i64,
) -> Result<Option<(i64, i64)>, Code> {
    let mut at = 0;
    for _ in 0..count {
        let prefix = read_prefix(section, at)?;
        let timestamp = base_timestamp.wrapping_add(prefix.time_delta);
        if wanted <= timestamp && timestamp <= most && prefix.offset_delta >= from_delta {
            return Ok(Some((timestamp, prefix.offset_delta)));
        }
        at = prefix.end;
    }
    Ok(None)
}

/// Position and header fields of a batch to decode: `protocol.records.columns.Description`.
pub type Description = (i64, i64, i64, i64, i64, i64, Option<i64>);

/// Size of one record in the columns, in bytes: five columns of 8 bytes and three of 4 bytes.
pub const COLUMN_BYTES: usize = 52;

/// The number of records that the headers of these batches announce. It is at most what fits into the blob.
pub fn capacity(blob: &[u8], batches: &[Description]) -> Result<usize, RecordError> {
    let mut total = 0usize;
    for (row, (start, end, count, ..)) in batches.iter().enumerate() {
        let error = |code| RecordError { code, row };
        let (Ok(start), Ok(end), Ok(count)) = (usize::try_from(*start), usize::try_from(*end), usize::try_from(*count))
        else {
            return Err(error(OUT_OF_BOUNDS));
        };
        if start > end || end > blob.len() {
            return Err(error(OUT_OF_BOUNDS));
        }
        if count > (end - start) / MIN_RECORD_BYTES {
            return Err(error(BAD_COUNT));
        }
        total = total.checked_add(count).ok_or(error(OUT_OF_BOUNDS))?;
    }
    Ok(total)
}

/// Decode the records from `first_offset` on into `out`, which has room for `capacity` records. The columns follow each
/// other in `out`: offsets, timestamps, starts of keys, of values and of headers, then the lengths of keys, values and
/// headers.
///
/// Returns the number of records in complete batches, and the error of the batch after them.
pub fn decode(blob: &[u8], batches: &[Description], first_offset: i64, out: &mut [u8]) -> (usize, Option<RecordError>) {
    let rows = out.len() / COLUMN_BYTES;
    let mut rest = out;
    let mut column = |width: usize| {
        let (first, after) = std::mem::take(&mut rest).split_at_mut(rows * width);
        rest = after;
        first
    };
    let (offsets, times, keys, values, headers) = (column(8), column(8), column(8), column(8), column(8));
    let (key_sizes, value_sizes, header_sizes) = (column(4), column(4), column(4));
    let mut at = 0;
    for (row, batch) in batches.iter().enumerate() {
        let complete = at;
        let (start, end, count, base_offset, base_timestamp, last_delta, append_time) = *batch;
        let error = |code| (complete, Some(RecordError { code, row }));
        let (mut position, end) = (start as usize, end as usize); // `capacity` has checked them
        let Some(bytes) = blob.get(..end) else { return error(OUT_OF_BOUNDS) };
        let mut previous = -1;
        for _ in 0..count {
            let record = match read_record(bytes, position) {
                Ok(record) => record,
                Err(code) => return error(code),
            };
            let delta = record.prefix.offset_delta;
            if delta <= previous || delta > last_delta {
                return error(BAD_OFFSET);
            }
            previous = delta;
            position = record.prefix.end;
            let Some(offset) = base_offset.checked_add(delta) else { return error(BAD_OFFSET) };
            if offset < first_offset {
                continue;
            }
            if at >= rows {
                return error(OUT_OF_BOUNDS);
            }
            let timestamp = append_time.unwrap_or(base_timestamp.wrapping_add(record.prefix.time_delta));
            let (long, short) = (at * 8..at * 8 + 8, at * 4..at * 4 + 4);
            offsets[long.clone()].copy_from_slice(&offset.to_ne_bytes());
            times[long.clone()].copy_from_slice(&timestamp.to_ne_bytes());
            keys[long.clone()].copy_from_slice(&(record.key.start as i64).to_ne_bytes());
            values[long.clone()].copy_from_slice(&(record.value.start as i64).to_ne_bytes());
            headers[long].copy_from_slice(&(record.headers_at as i64).to_ne_bytes());
            key_sizes[short.clone()].copy_from_slice(&record.key.length.to_ne_bytes());
            value_sizes[short.clone()].copy_from_slice(&record.value.length.to_ne_bytes());
            header_sizes[short].copy_from_slice(&((position - record.headers_at) as i32).to_ne_bytes());
            at += 1;
        }
        if position != end {
            return error(BAD_COUNT);
        }
    }
    (at, None)
}

// ---- writing

/// A column of byte strings. If `lengths` is empty, all strings are null. If `starts` is empty, each string begins
/// where the one before it ends.
#[derive(Clone, Copy, Default)]
pub struct Strings<'a> {
    pub blob: &'a [u8],
    pub starts: Int64s<'a>,
    pub lengths: Int32s<'a>,
}

impl<'a> Strings<'a> {
    #[inline(always)]
    pub fn cut(&self, start: i64, length: i32) -> Result<Option<&'a [u8]>, Code> {
        if length <= 0 {
            return Ok(if length < 0 { None } else { Some(&[]) });
        }
        let start = usize::try_from(start).map_err(|_| OUTSIDE_BLOB)?;
        let end = start.checked_add(length as usize).ok_or(OUTSIDE_BLOB)?;
        self.blob.get(start..end).map(Some).ok_or(OUTSIDE_BLOB)
    }

    /// The string of a row. `cursor` is the end of the string before it, and is moved to the end of this one.
    #[inline(always)]
    fn next(&self, row: usize, cursor: &mut i64) -> Result<Option<&'a [u8]>, Code> {
        if self.lengths.is_empty() {
            return Ok(None);
        }
        if !self.starts.is_empty() {
            *cursor = self.starts.get(row);
        }
        let string = self.cut(*cursor, self.lengths.get(row))?;
        *cursor = cursor.saturating_add(string.map_or(0, <[u8]>::len) as i64);
        Ok(string)
    }
}

/// Positions of the next key, value and header section, for columns without `starts`.
pub type Cursors = (i64, i64, i64);

/// Columns to encode. `timestamps` has one entry for all rows, or one per row.
pub struct Source<'a> {
    pub rows: usize,
    pub keys: Strings<'a>,
    pub values: Strings<'a>,
    pub headers: Strings<'a>,
    pub timestamps: Int64s<'a>,
}

#[derive(Clone, Copy)]
pub struct Fields<'a> {
    pub key: Option<&'a [u8]>,
    pub value: Option<&'a [u8]>,
    pub headers: &'a [u8],
}

impl Fields<'_> {
    /// Size of the record in bytes, without the length that precedes it.
    #[inline(always)]
    pub fn size(&self, time_delta: i64, offset_delta: i64) -> usize {
        let string = |field: Option<&[u8]>| field.map_or(1, |bytes| size_of(bytes.len() as i64) + bytes.len());
        1 + size_of(time_delta)
            + size_of(offset_delta)
            + string(self.key)
            + string(self.value)
            + self.headers.len().max(1)
    }

    #[inline(always)]
    fn write(&self, writer: &mut Writer<'_>, size: usize, time_delta: i64, offset_delta: i64) {
        writer.number(size as i64);
        writer.byte(0); // attributes
        writer.number(time_delta);
        writer.number(offset_delta);
        writer.string(self.key);
        writer.string(self.value);
        if self.headers.is_empty() {
            writer.byte(0);
        } else {
            writer.bytes(self.headers);
        }
    }
}

#[inline(always)]
fn prefixed_size(size: usize) -> usize {
    size + size_of(size as i64)
}

impl<'a> Source<'a> {
    #[inline(always)]
    fn fields(&self, row: usize, cursors: &mut Cursors) -> Result<Fields<'a>, Code> {
        Ok(Fields {
            key: self.keys.next(row, &mut cursors.0)?,
            value: self.values.next(row, &mut cursors.1)?,
            headers: self.headers.next(row, &mut cursors.2)?.unwrap_or_default(),
        })
    }

    #[inline(always)]
    fn time_delta(&self, row: usize, first: usize) -> i64 {
        if self.timestamps.len() == 1 {
            return 0;
        }
        self.timestamps.get(row).wrapping_sub(self.timestamps.get(first))
    }

    /// Divide the rows into batches of at most `max_bytes` with their headers. A larger record gets a batch of its own.
    ///
    /// Returns for each batch the index after its last row, and the size of its records section in bytes.
    pub fn plan(&self, max_bytes: i64) -> Result<Vec<(usize, usize)>, RecordError> {
        let most = usize::try_from(max_bytes).unwrap_or(0);
        let mut batches = Vec::new();
        let (mut first, mut section) = (0, 0);
        let mut cursors = (0, 0, 0);
        for row in 0..self.rows {
            let error = |code| RecordError { code, row };
            let fields = self.fields(row, &mut cursors).map_err(error)?;
            let mut size = fields.size(self.time_delta(row, first), (row - first) as i64);
            if row > first && HEADER_BYTES + section + prefixed_size(size) > most {
                batches.try_reserve(1).map_err(|_| error(TOO_LARGE))?;
                batches.push((row, section));
                (first, section) = (row, 0);
                size = fields.size(0, 0);
            }
            if size > MAX_BODY_BYTES {
                return Err(error(TOO_LARGE));
            }
            section += prefixed_size(size);
        }
        if self.rows > 0 {
            batches.push((self.rows, section));
        }
        Ok(batches)
    }

    /// Encode the rows from `first` up to `end`. They must fill `out`. Returns the cursors for the next batch.
    pub fn write(
        &self,
        first: usize,
        end: usize,
        mut cursors: Cursors,
        out: &mut [u8],
    ) -> Result<Cursors, RecordError> {
        let mut writer = Writer { out, at: 0 };
        for row in first..end {
            let error = |code| RecordError { code, row };
            let fields = self.fields(row, &mut cursors).map_err(error)?;
            let (time_delta, offset_delta) = (self.time_delta(row, first), (row - first) as i64);
            let size = fields.size(time_delta, offset_delta);
            if size > MAX_BODY_BYTES || prefixed_size(size) > writer.room() {
                return Err(error(OUT_OF_BOUNDS));
            }
            fields.write(&mut writer, size, time_delta, offset_delta);
        }
        if writer.room() > 0 {
            return Err(RecordError { code: OUT_OF_BOUNDS, row: end });
        }
        Ok(cursors)
    }
}

/// Size of the records section of these rows, in bytes. `time_of` has one timestamp for all rows, or one per row.
pub fn measure_rows<'a>(
    rows: usize,
    fields: impl Fn(usize) -> Fields<'a>,
    time_of: &[i64],
) -> Result<usize, RecordError> {
    let mut section = 0usize;
    for row in 0..rows {
        let size = fields(row).size(time_delta(time_of, row), row as i64);
        if size > MAX_BODY_BYTES {
            return Err(RecordError { code: TOO_LARGE, row });
        }
        section = section.saturating_add(prefixed_size(size));
    }
    Ok(section)
}

/// Encode rows whose size `measure_rows` has computed.
pub fn write_rows<'a>(
    rows: usize,
    fields: impl Fn(usize) -> Fields<'a>,
    time_of: &[i64],
    out: &mut [u8],
) -> Result<(), RecordError> {
    let mut writer = Writer { out, at: 0 };
    for row in 0..rows {
        let (fields, delta) = (fields(row), time_delta(time_of, row));
        let size = fields.size(delta, row as i64);
        if prefixed_size(size) > writer.room() {
            return Err(RecordError { code: OUT_OF_BOUNDS, row });
        }
        fields.write(&mut writer, size, delta, row as i64);
    }
    Ok(())
}

#[inline(always)]
fn time_delta(time_of: &[i64], row: usize) -> i64 {
    if time_of.len() == 1 {
        return 0;
    }
    match (time_of.get(row), time_of.first()) {
        (Some(own), Some(base)) => own.wrapping_sub(*base),
        _ => 0,
    }
}

// ---- columns for Arrow

/// Iterate over the strings of all columns, each with its row counted across the columns.
fn all_strings<'a>(
    columns: &'a [Strings<'a>],
) -> impl Iterator<Item = Result<(usize, Option<&'a [u8]>), RecordError>> + 'a {
    let rows = columns.iter().flat_map(|column| (0..column.lengths.len()).map(move |row| (column, row)));
    rows.enumerate().map(|(row, (column, index))| {
        let string = column.cut(column.starts.get(index), column.lengths.get(index));
        string.map(|string| (row, string)).map_err(|code| RecordError { code, row })
    })
}

/// Sum of the lengths of all strings. Fails if a string lies outside its blob.
pub fn total_length(columns: &[Strings<'_>]) -> Result<usize, RecordError> {
    let mut total = 0usize;
    for found in all_strings(columns) {
        total = total.saturating_add(found?.1.map_or(0, <[u8]>::len));
    }
    Ok(total)
}

/// Copy all strings into `out`, one after another. Write the start of each, and the end of the last, to `bounds` as
/// int64.
pub fn gather(columns: &[Strings<'_>], bounds: &mut [u8], out: &mut [u8]) -> Result<(), RecordError> {
    let mut slots = bounds.chunks_exact_mut(8);
    let mut bound = |at: usize| {
        if let Some(room) = slots.next() {
            room.copy_from_slice(&(at as i64).to_ne_bytes());
        }
    };
    bound(0);
    let mut writer = Writer { out, at: 0 };
    for found in all_strings(columns) {
        let (row, string) = found?;
        let string = string.unwrap_or_default();
        if string.len() > writer.room() {
            return Err(RecordError { code: OUT_OF_BOUNDS, row });
        }
        writer.bytes(string);
        bound(writer.at);
    }
    Ok(())
}

/// Headers of rows. A row has `counts` headers. In the columns of keys and values, the first of them is at index
/// `firsts`.
pub struct HeaderSource<'a> {
    pub firsts: Int64s<'a>,
    pub counts: Int32s<'a>,
    pub keys: Strings<'a>,
    pub values: Strings<'a>,
}

impl<'a> HeaderSource<'a> {
    /// Indexes of a row's headers in the columns.
    fn indexes(&self, row: usize) -> Result<std::ops::Range<usize>, Code> {
        let count = self.counts.get(row).max(0) as usize;
        if count == 0 {
            return Ok(0..0);
        }
        let first = usize::try_from(self.firsts.get(row)).map_err(|_| OUTSIDE_BLOB)?;
        let end = first.checked_add(count).ok_or(OUTSIDE_BLOB)?;
        if end > self.keys.lengths.len() || end > self.values.lengths.len() {
            return Err(OUTSIDE_BLOB);
        }
        Ok(first..end)
    }

    fn pair(&self, index: usize) -> Result<(&'a [u8], Option<&'a [u8]>), Code> {
        let length = self.keys.lengths.get(index);
        let key = self.keys.cut(self.keys.starts.get(index), length)?.ok_or(BAD_HEADERS)?;
        Ok((key, self.values.cut(self.values.starts.get(index), self.values.lengths.get(index))?))
    }

    /// Compute the size of each row's header section, in bytes; 0 for a row without headers.
    pub fn measure(&self) -> Result<Vec<i32>, RecordError> {
        let mut sizes = Vec::new();
        sizes.try_reserve_exact(self.counts.len()).map_err(|_| RecordError { code: TOO_LARGE, row: 0 })?;
        for row in 0..self.counts.len() {
            let error = |code| RecordError { code, row };
            let indexes = self.indexes(row).map_err(error)?;
            let mut size = if indexes.is_empty() { 0 } else { size_of(indexes.len() as i64) };
            for index in indexes {
                let (key, value) = self.pair(index).map_err(error)?;
                size += prefixed_size(key.len()) + value.map_or(1, |bytes| prefixed_size(bytes.len()));
                if size > MAX_BODY_BYTES {
                    return Err(error(TOO_LARGE));
                }
            }
            sizes.push(size as i32);
        }
        Ok(sizes)
    }

    /// Encode the header sections one after another. `sizes` are those that `measure` has computed, and `out` has
    /// exactly their sum.
    pub fn write(&self, sizes: &[i32], out: &mut [u8]) -> Result<(), RecordError> {
        let mut writer = Writer { out, at: 0 };
        for (row, size) in sizes.iter().enumerate() {
            let error = |code| RecordError { code, row };
            let indexes = self.indexes(row).map_err(error)?;
            if indexes.is_empty() {
                continue;
            }
            if *size as usize > writer.room() {
                return Err(error(OUT_OF_BOUNDS));
            }
            writer.number(indexes.len() as i64);
            for index in indexes {
                let (key, value) = self.pair(index).map_err(error)?;
                writer.string(Some(key));
                writer.string(value);
            }
        }
        Ok(())
    }
}

/// Position of a header: start and length of the key, then start and length of the value.
pub type HeaderSpan = (i64, i32, i64, i32);

/// Find the headers of all rows. Returns their positions, and for each row the number of headers in this and all
/// earlier rows.
pub fn decode_headers(sections: Strings<'_>) -> Result<(Vec<HeaderSpan>, Vec<i64>), RecordError> {
    let (mut spans, mut bounds): (Vec<HeaderSpan>, Vec<i64>) = (Vec::new(), Vec::new());
    bounds.try_reserve_exact(sections.lengths.len()).map_err(|_| RecordError { code: TOO_LARGE, row: 0 })?;
    for row in 0..sections.lengths.len() {
        let error = |code| RecordError { code, row };
        let start = sections.starts.get(row);
        let section = sections.cut(start, sections.lengths.get(row)).map_err(error)?.unwrap_or_default();
        if section.len() > 1 {
            let (count, mut at) = read_headers(section, 0).map_err(error)?;
            spans.try_reserve(count as usize).map_err(|_| error(TOO_LARGE))?;
            for _ in 0..count {
                let key = read_string(section, at).map_err(error)?;
                let value = read_string(section, key.end()).map_err(error)?;
                at = value.end();
                spans.push((start + key.start as i64, key.length, start + value.start as i64, value.length));
            }
        }
        bounds.push(spans.len() as i64);
    }
    Ok((spans, bounds))
}
