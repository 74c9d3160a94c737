//! Scans the batches of one partition in a Fetch response, and selects those to decode.

use crate::batch::{Header, CODEC_MASK, CONTROL, HEADER_BYTES, LOG_APPEND_TIME, MAGIC, MAGIC_AT};
use crate::records::{Description, COLUMN_BYTES, MIN_RECORD_BYTES};

/// First bytes of the only record of a transaction marker in its usual form: its length, three zeros, and a key of four
/// bytes with version 0.
const MARKER: [u8; 7] = [32, 0, 0, 0, 8, 0, 0];
const MARKER_BYTES: usize = 17;

/// Options for reading a partition.
#[derive(Clone, Copy)]
pub struct ReadOptions {
    /// Records below this offset are dropped.
    pub first_offset: i64,
    /// Markers are checked, even if no transaction is aborted.
    pub checks_markers: bool,
    pub checks_crc: bool,
    /// Largest size of the decoded columns of one batch, in bytes. The second limit holds for all batches before the
    /// last.
    pub max_batch_bytes: i64,
    pub max_earlier_bytes: i64,
}

/// The batches to decode, and facts about all batches.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Batches {
    pub batches: Vec<Description>,
    pub next_offset: i64,
    pub column_bytes: i64,
    /// Base offset and leader epoch of the first batch, and of each batch at which the epoch changes.
    pub epochs: Vec<(i64, i32)>,
}

/// Scan the batches. Returns None if a batch is compressed, damaged, too large or unusual. The caller then reads all of
/// them in Python, which reports the exact error.
pub fn scan(bytes: &[u8], options: &ReadOptions) -> Option<Batches> {
    let mut found = Batches { next_offset: options.first_offset, ..Batches::default() };
    let mut start = 0;
    while start < bytes.len() {
        let rest = &bytes[start..];
        if rest.len() > MAGIC_AT && rest[MAGIC_AT] as i8 != MAGIC {
            return None;
        }
        if rest.len() < HEADER_BYTES {
            break;
        }
        let header = Header::of(rest)?;
        let (base_offset, epoch, attributes) = (header.base_offset, header.leader_epoch, header.attributes);
        let (last_delta, count) = (i64::from(header.last_offset_delta), i64::from(header.count));
        if found.epochs.last().is_none_or(|last| last.1 != epoch) {
            found.epochs.try_reserve(1).ok()?;
            found.epochs.push((base_offset, epoch));
        }
        let size = header.size()?;
        if size < HEADER_BYTES {
            return None;
        }
        let Some(batch) = rest.get(..size) else { break };
        let last_offset = base_offset.checked_add(last_delta)?;
        if count < 0 || last_delta < 0 || base_offset < 0 || attributes & CODEC_MASK != 0 {
            return None;
        }
        if options.checks_crc && !header.has_crc_of(batch) {
            return None;
        }
        let records = &batch[HEADER_BYTES..];
        let is_control = attributes & CONTROL != 0;
        if is_control && options.checks_markers && (count != 1 || !is_marker(records)) {
            return None;
        }
        if count > 0 && !is_control && last_offset >= options.first_offset {
            let size_of_columns = count * COLUMN_BYTES as i64;
            let is_over_limit = !found.batches.is_empty() && found.column_bytes >= options.max_earlier_bytes;
            if is_over_limit
                || size_of_columns > options.max_batch_bytes
                || count * MIN_RECORD_BYTES as i64 > records.len() as i64
            {
                return None;
            }
            let append_time = (attributes & LOG_APPEND_TIME != 0).then_some(header.max_timestamp);
            let (from, end) = (start + HEADER_BYTES, start + size);
            found.batches.try_reserve(1).ok()?;
            found.batches.push((
                from as i64,
                end as i64,
                count,
                base_offset,
                header.base_timestamp,
                last_delta,
                append_time,
            ));
            found.column_bytes += size_of_columns;
        }
        found.next_offset = found.next_offset.max(last_offset.checked_add(1)?);
        start += size;
    }
    Some(found)
}

/// True for the record of a transaction marker as Kafka brokers write it.
fn is_marker(records: &[u8]) -> bool {
    records.len() == MARKER_BYTES && records.starts_with(&MARKER) && records[7] == 0 && records[8] <= 1
}
