//! The batches of a partition in a Fetch response, as far as there is nothing to decide about them.

use crate::records::{self, Description, COLUMN_BYTES, HEADER_BYTES};

const MAGIC_AT: usize = 16;
const CRC_AT: usize = 17;
const CRC_FROM: usize = 21;
/// Bytes before those that the length counts.
const LENGTH_PREFIX_BYTES: usize = 12;
const MAGIC: u8 = 2;
const CODEC_MASK: i16 = 0x07;
const LOG_APPEND_TIME: i16 = 0x08;
const CONTROL: i16 = 0x20;
const MIN_RECORD_BYTES: i64 = 7;
/// The only record of a usual marker: its length and three zeros, a key of four bytes with version 0.
const MARKER: [u8; 7] = [32, 0, 0, 0, 8, 0, 0];
const MARKER_BYTES: usize = 17;

/// How to read a partition.
#[derive(Clone, Copy)]
pub struct Reading {
    /// Records below it are not wanted.
    pub first_offset: i64,
    /// Markers are looked at, although no transaction is aborted.
    pub checks_markers: bool,
    pub checks_crc: bool,
    /// Most bytes that a batch, and all batches before the last, may take when they are decoded.
    pub batch_bytes: i64,
    pub room_bytes: i64,
}

/// The batches to decode, and facts about all batches.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Found {
    pub batches: Vec<Description>,
    pub next_offset: i64,
    pub made_bytes: i64,
    /// Base offset and leader epoch of the first batch, and of each batch at which the epoch changes.
    pub epochs: Vec<(i64, i32)>,
}

struct Header<'a>(&'a [u8]);

impl Header<'_> {
    fn i64(&self, at: usize) -> Option<i64> {
        self.0.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map(i64::from_be_bytes)
    }

    fn i32(&self, at: usize) -> Option<i32> {
        self.0.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map(i32::from_be_bytes)
    }

    fn i16(&self, at: usize) -> Option<i16> {
        self.0.get(at..at + 2).and_then(|bytes| bytes.try_into().ok()).map(i16::from_be_bytes)
    }
}

/// None: a batch is compressed, damaged, too large or unusual. Then Python reads all of them, and says what it found.
pub fn survey(bytes: &[u8], reading: &Reading) -> Option<Found> {
    let mut found = Found { next_offset: reading.first_offset, ..Found::default() };
    let mut start = 0;
    while start < bytes.len() {
        let rest = &bytes[start..];
        if rest.len() > MAGIC_AT && rest[MAGIC_AT] != MAGIC {
            return None;
        }
        if rest.len() < HEADER_BYTES {
            break;
        }
        let header = Header(rest);
        let (base_offset, epoch) = (header.i64(0)?, header.i32(12)?);
        let (attributes, last_delta, count) = (header.i16(21)?, i64::from(header.i32(23)?), i64::from(header.i32(57)?));
        if found.epochs.last().is_none_or(|last| last.1 != epoch) {
            found.epochs.try_reserve(1).ok()?;
            found.epochs.push((base_offset, epoch));
        }
        let size = LENGTH_PREFIX_BYTES.checked_add(usize::try_from(header.i32(8)?).ok()?)?;
        if size < HEADER_BYTES {
            return None;
        }
        let Some(batch) = rest.get(..size) else { break };
        let last_offset = base_offset.checked_add(last_delta)?;
        if count < 0 || last_delta < 0 || base_offset < 0 || attributes & CODEC_MASK != 0 {
            return None;
        }
        if reading.checks_crc && header.i32(CRC_AT)? as u32 != crc32c::crc32c(&batch[CRC_FROM..]) {
            return None;
        }
        let records = &batch[HEADER_BYTES..];
        let is_control = attributes & CONTROL != 0;
        if is_control && reading.checks_markers && (count != 1 || !is_marker(records)) {
            return None;
        }
        if count > 0 && !is_control && last_offset >= reading.first_offset {
            let made = count * COLUMN_BYTES as i64;
            let is_stopped = !found.batches.is_empty() && found.made_bytes >= reading.room_bytes;
            if is_stopped || made > reading.batch_bytes || count * MIN_RECORD_BYTES > records.len() as i64 {
                return None;
            }
            let append_time = if attributes & LOG_APPEND_TIME != 0 { Some(header.i64(35)?) } else { None };
            let (from, end) = (start + HEADER_BYTES, start + size);
            found.batches.try_reserve(1).ok()?;
            found.batches.push((from as i64, end as i64, count, base_offset, header.i64(27)?, last_delta, append_time));
            found.made_bytes += made;
        }
        found.next_offset = found.next_offset.max(last_offset.checked_add(1)?);
        start += size;
    }
    Some(found)
}

/// True for the record of a marker as all brokers write it.
fn is_marker(records: &[u8]) -> bool {
    records.len() == MARKER_BYTES && records.starts_with(&MARKER) && records[7] == 0 && records[8] <= 1
}

/// Decode the batches like `records::decode`; None if one does not parse.
pub fn decode(bytes: &[u8], found: &Found, first_offset: i64, out: &mut [u8]) -> Option<usize> {
    let (rows, flaw) = records::decode(bytes, &found.batches, first_offset, out);
    flaw.is_none().then_some(rows)
}
