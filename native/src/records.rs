//! Loops over the bytes of records (batch format v2): length, attributes, timestamp delta, offset delta, key, value,
//! headers, where all numbers are zigzag varints.
//!
//! Safe Rust over slices. Every position is checked, and sums of numbers from outside are checked or wrap.

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
pub const OVERFULL: Code = 8;

/// Smallest record: one byte each for its length, attributes, two deltas, two lengths and the number of headers.
pub const MIN_RECORD_BYTES: usize = 7;
const MAX_BODY_BYTES: usize = i32::MAX as usize;
const VARINT32_BYTES: usize = 5;
const VARINT64_BYTES: usize = 10;

/// An error code, and the record or batch that it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flaw {
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

/// Value and next position of a varint of at most `most` bytes, which must end where `bytes` ends.
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
        raw |= u64::from(byte & 0x7f) << shift; // at most 63: `most` is at most ten
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

/// Output that is written from the front. The caller has measured what it writes.
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

/// Number of headers, and the position of the first, of a section that ends where `bytes` ends.
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

/// Facts about a records section; timestamps are -1 if there are none, `without_key` is -1 if all records have one.
#[derive(Debug, PartialEq, Eq)]
pub struct Checked {
    pub smallest: i64,
    pub largest: i64,
    pub without_key: i64,
}

pub fn check(section: &[u8], count: i64, base_timestamp: i64) -> Result<Checked, Flaw> {
    let (mut smallest, mut largest, mut without_key) = (i64::MAX, -1, -1);
    let mut at = 0;
    for row in 0..count {
        let flaw = |code| Flaw { code, row: row as usize };
        let record = read_record(section, at).map_err(flaw)?;
        if record.prefix.offset_delta != row {
            return Err(flaw(BAD_OFFSET));
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
        return Err(Flaw { code: BAD_COUNT, row: count.max(0) as usize });
    }
    Ok(Checked { smallest: if smallest == i64::MAX { -1 } else { smallest }, largest, without_key })
}

/// Timestamp and offset delta of the first record from `from_delta` on with wanted <= timestamp <= most.
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

/// A batch to decode: `protocol.records.columns.Description`.
pub type Description = (i64, i64, i64, i64, i64, i64, Option<i64>);

/// Bytes of one record in the columns: five of 8 bytes, then three of 4 bytes.
pub const COLUMN_BYTES: usize = 52;

/// Number of records in these batches, which is bounded by the bytes of the blob.
pub fn capacity(blob: &[u8], batches: &[Description]) -> Result<usize, Flaw> {
    let mut total = 0usize;
    for (row, (start, end, count, ..)) in batches.iter().enumerate() {
        let flaw = |code| Flaw { code, row };
        let (Ok(start), Ok(end), Ok(count)) = (usize::try_from(*start), usize::try_from(*end), usize::try_from(*count))
        else {
            return Err(flaw(OVERFULL));
        };
        if start > end || end > blob.len() {
            return Err(flaw(OVERFULL));
        }
        if count > (end - start) / MIN_RECORD_BYTES {
            return Err(flaw(BAD_COUNT));
        }
        total = total.checked_add(count).ok_or(flaw(OVERFULL))?;
    }
    Ok(total)
}

/// Decode the records from `first_offset` on into `out`, which has room for `capacity` records: columns of offsets,
/// timestamps, starts of keys, of values and of headers, then the lengths of these.
///
/// Returns the number of records of whole batches, and the flaw of the batch behind these.
pub fn decode(blob: &[u8], batches: &[Description], first_offset: i64, out: &mut [u8]) -> (usize, Option<Flaw>) {
    let rows = out.len() / COLUMN_BYTES;
    let mut rest = out;
    let mut column = |width: usize| {
        let (first, behind) = std::mem::take(&mut rest).split_at_mut(rows * width);
        rest = behind;
        first
    };
    let (offsets, times, keys, values, headers) = (column(8), column(8), column(8), column(8), column(8));
    let (key_sizes, value_sizes, header_sizes) = (column(4), column(4), column(4));
    let mut at = 0;
    for (row, batch) in batches.iter().enumerate() {
        let whole = at;
        let (start, end, count, base_offset, base_timestamp, last_delta, append_time) = *batch;
        let flaw = |code| (whole, Some(Flaw { code, row }));
        let (mut position, end) = (start as usize, end as usize); // `capacity` has checked them
        let Some(bytes) = blob.get(..end) else { return flaw(OVERFULL) };
        let mut previous = -1;
        for _ in 0..count {
            let record = match read_record(bytes, position) {
                Ok(record) => record,
                Err(code) => return flaw(code),
            };
            let delta = record.prefix.offset_delta;
            if delta <= previous || delta > last_delta {
                return flaw(BAD_OFFSET);
            }
            previous = delta;
            position = record.prefix.end;
            let Some(offset) = base_offset.checked_add(delta) else { return flaw(BAD_OFFSET) };
            if offset < first_offset {
                continue;
            }
            if at >= rows {
                return flaw(OVERFULL);
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
            return flaw(BAD_COUNT);
        }
    }
    (at, None)
}

// ---- writing

/// A column of byte strings. Empty `lengths`: all are null. Empty `starts`: they follow each other in the blob.
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

    /// String of a row. `cursor` is the position behind the string of the row before.
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

/// Positions of the next key, value and headers section in columns whose strings follow each other.
pub type Cursors = (i64, i64, i64);

/// Columns to encode. `timestamps` has one entry, or one per row.
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
    /// Size of the record without its length, which precedes it.
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
        writer.byte(0); // the attributes
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
fn whole(size: usize) -> usize {
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

    /// Row behind the last, and size of the records section, of each batch of at most `most_bytes` with its header. A
    /// record that is larger than that has a batch of its own.
    pub fn plan(&self, most_bytes: i64) -> Result<Vec<(usize, usize)>, Flaw> {
        let most = usize::try_from(most_bytes).unwrap_or(0);
        let mut batches = Vec::new();
        let (mut first, mut section) = (0, 0);
        let mut cursors = (0, 0, 0);
        for row in 0..self.rows {
            let flaw = |code| Flaw { code, row };
            let fields = self.fields(row, &mut cursors).map_err(flaw)?;
            let mut size = fields.size(self.time_delta(row, first), (row - first) as i64);
            if row > first && HEADER_BYTES + section + whole(size) > most {
                batches.try_reserve(1).map_err(|_| flaw(TOO_LARGE))?;
                batches.push((row, section));
                (first, section) = (row, 0);
                size = fields.size(0, 0);
            }
            if size > MAX_BODY_BYTES {
                return Err(flaw(TOO_LARGE));
            }
            section += whole(size);
        }
        if self.rows > 0 {
            batches.push((self.rows, section));
        }
        Ok(batches)
    }

    /// Write the rows `first` to `end` so that they fill `out`. Returns the cursors for the next batch.
    pub fn write(&self, first: usize, end: usize, mut cursors: Cursors, out: &mut [u8]) -> Result<Cursors, Flaw> {
        let mut writer = Writer { out, at: 0 };
        for row in first..end {
            let flaw = |code| Flaw { code, row };
            let fields = self.fields(row, &mut cursors).map_err(flaw)?;
            let (time_delta, offset_delta) = (self.time_delta(row, first), (row - first) as i64);
            let size = fields.size(time_delta, offset_delta);
            if size > MAX_BODY_BYTES || whole(size) > writer.room() {
                return Err(flaw(OVERFULL));
            }
            fields.write(&mut writer, size, time_delta, offset_delta);
        }
        if writer.room() > 0 {
            return Err(Flaw { code: OVERFULL, row: end });
        }
        Ok(cursors)
    }
}

/// Size of the records section of these rows. `time_of` is the timestamp of a row.
pub fn measure_rows<'a>(rows: usize, fields: impl Fn(usize) -> Fields<'a>, time_of: &[i64]) -> Result<usize, Flaw> {
    let mut section = 0usize;
    for row in 0..rows {
        let size = fields(row).size(time_delta(time_of, row), row as i64);
        if size > MAX_BODY_BYTES {
            return Err(Flaw { code: TOO_LARGE, row });
        }
        section = section.saturating_add(whole(size));
    }
    Ok(section)
}

/// Write rows measured by `measure_rows`.
pub fn write_rows<'a>(
    rows: usize,
    fields: impl Fn(usize) -> Fields<'a>,
    time_of: &[i64],
    out: &mut [u8],
) -> Result<(), Flaw> {
    let mut writer = Writer { out, at: 0 };
    for row in 0..rows {
        let (fields, delta) = (fields(row), time_delta(time_of, row));
        let size = fields.size(delta, row as i64);
        if whole(size) > writer.room() {
            return Err(Flaw { code: OVERFULL, row });
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

/// Each string of these columns, with its row among all.
fn each<'a>(columns: &'a [Strings<'a>]) -> impl Iterator<Item = Result<(usize, Option<&'a [u8]>), Flaw>> + 'a {
    let places = columns.iter().flat_map(|column| (0..column.lengths.len()).map(move |row| (column, row)));
    places.enumerate().map(|(row, (column, place))| {
        let string = column.cut(column.starts.get(place), column.lengths.get(place));
        string.map(|string| (row, string)).map_err(|code| Flaw { code, row })
    })
}

/// Sum of the lengths that are not null, if all strings lie inside of their blobs.
pub fn total_length(columns: &[Strings<'_>]) -> Result<usize, Flaw> {
    let mut total = 0usize;
    for found in each(columns) {
        total = total.saturating_add(found?.1.map_or(0, <[u8]>::len));
    }
    Ok(total)
}

/// Copy the strings behind each other into `out`, and the position of each and the end of the last to `bounds` (int64).
pub fn gather(columns: &[Strings<'_>], bounds: &mut [u8], out: &mut [u8]) -> Result<(), Flaw> {
    let mut rooms = bounds.chunks_exact_mut(8);
    let mut bound = |at: usize| {
        if let Some(room) = rooms.next() {
            room.copy_from_slice(&(at as i64).to_ne_bytes());
        }
    };
    bound(0);
    let mut writer = Writer { out, at: 0 };
    for found in each(columns) {
        let (row, string) = found?;
        let string = string.unwrap_or_default();
        if string.len() > writer.room() {
            return Err(Flaw { code: OVERFULL, row });
        }
        writer.bytes(string);
        bound(writer.at);
    }
    Ok(())
}

/// Headers of rows: `counts` headers each, from `firsts` on in the columns of keys and values.
pub struct HeaderSource<'a> {
    pub firsts: Int64s<'a>,
    pub counts: Int32s<'a>,
    pub keys: Strings<'a>,
    pub values: Strings<'a>,
}

impl<'a> HeaderSource<'a> {
    /// Indexes of a row's headers.
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

    /// Size of each row's section; 0 for a row without headers.
    pub fn measure(&self) -> Result<Vec<i32>, Flaw> {
        let mut sizes = Vec::new();
        sizes.try_reserve_exact(self.counts.len()).map_err(|_| Flaw { code: TOO_LARGE, row: 0 })?;
        for row in 0..self.counts.len() {
            let flaw = |code| Flaw { code, row };
            let indexes = self.indexes(row).map_err(flaw)?;
            let mut size = if indexes.is_empty() { 0 } else { size_of(indexes.len() as i64) };
            for index in indexes {
                let (key, value) = self.pair(index).map_err(flaw)?;
                size += whole(key.len()) + value.map_or(1, |bytes| whole(bytes.len()));
                if size > MAX_BODY_BYTES {
                    return Err(flaw(TOO_LARGE));
                }
            }
            sizes.push(size as i32);
        }
        Ok(sizes)
    }

    /// Write the sections of `sizes` behind each other so that they fill `out`.
    pub fn write(&self, sizes: &[i32], out: &mut [u8]) -> Result<(), Flaw> {
        let mut writer = Writer { out, at: 0 };
        for (row, size) in sizes.iter().enumerate() {
            let flaw = |code| Flaw { code, row };
            let indexes = self.indexes(row).map_err(flaw)?;
            if indexes.is_empty() {
                continue;
            }
            if *size as usize > writer.room() {
                return Err(flaw(OVERFULL));
            }
            writer.number(indexes.len() as i64);
            for index in indexes {
                let (key, value) = self.pair(index).map_err(flaw)?;
                writer.string(Some(key));
                writer.string(value);
            }
        }
        Ok(())
    }
}

/// Spans of headers: start and length of the key, then of the value.
pub type HeaderSpan = (i64, i32, i64, i32);

/// Spans of all headers of all rows, and the number of headers up to and with each row.
pub fn decode_headers(sections: Strings<'_>) -> Result<(Vec<HeaderSpan>, Vec<i64>), Flaw> {
    let (mut spans, mut bounds): (Vec<HeaderSpan>, Vec<i64>) = (Vec::new(), Vec::new());
    bounds.try_reserve_exact(sections.lengths.len()).map_err(|_| Flaw { code: TOO_LARGE, row: 0 })?;
    for row in 0..sections.lengths.len() {
        let flaw = |code| Flaw { code, row };
        let start = sections.starts.get(row);
        let section = sections.cut(start, sections.lengths.get(row)).map_err(flaw)?.unwrap_or_default();
        if section.len() > 1 {
            let (count, mut at) = read_headers(section, 0).map_err(flaw)?;
            spans.try_reserve(count as usize).map_err(|_| flaw(TOO_LARGE))?;
            for _ in 0..count {
                let key = read_string(section, at).map_err(flaw)?;
                let value = read_string(section, key.end()).map_err(flaw)?;
                at = value.end();
                spans.push((start + key.start as i64, key.length, start + value.start as i64, value.length));
            }
        }
        bounds.push(spans.len() as i64);
    }
    Ok((spans, bounds))
}
