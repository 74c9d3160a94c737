//! Records that wait to be encoded, as columns: their small fields one behind the other in one blob.

use crate::hashes;
use crate::records::Fields;

/// A key and a small value lie in the blob from `start` on. A length of -1: null.
#[derive(Clone, Copy)]
struct Row {
    start: u32,
    key: i32,
    value: i32,
    kept: u32,
}

/// In place of an index: the value is in the blob, or null.
const COPIED: u32 = u32::MAX;

#[derive(Default)]
pub struct Rows {
    blob: Vec<u8>,
    rows: Vec<Row>,
    has_keys: bool,
}

/// A value to add: bytes to copy, or the length and index of a value that the caller keeps.
#[derive(Clone, Copy)]
pub enum Value<'a> {
    Copied(Option<&'a [u8]>),
    Kept(usize, usize),
}

fn length_of(field: Option<&[u8]>) -> Option<i32> {
    field.map_or(Some(-1), |bytes| i32::try_from(bytes.len()).ok())
}

impl Rows {
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// True if any record has a key.
    pub fn has_keys(&self) -> bool {
        self.has_keys
    }

    /// Add a record, and return its row; None if there is no memory for it.
    #[inline(always)]
    pub fn add(&mut self, key: Option<&[u8]>, value: Value<'_>) -> Option<usize> {
        let (copied, length, kept) = match value {
            Value::Copied(bytes) => (bytes.unwrap_or_default(), length_of(bytes)?, COPIED),
            Value::Kept(length, index) => {
                (&[][..], i32::try_from(length).ok()?, u32::try_from(index).ok().filter(|index| *index != COPIED)?)
            }
        };
        let row = Row { start: u32::try_from(self.blob.len()).ok()?, key: length_of(key)?, value: length, kept };
        let key = key.unwrap_or_default();
        self.blob.try_reserve(key.len().checked_add(copied.len())?).ok()?;
        self.rows.try_reserve(1).ok()?;
        self.blob.extend_from_slice(key);
        self.blob.extend_from_slice(copied);
        self.rows.push(row);
        self.has_keys |= row.key >= 0;
        Some(self.rows.len() - 1)
    }

    /// Key of a row; None for a null key and behind the last row.
    pub fn key(&self, row: usize) -> Option<&[u8]> {
        let row = self.rows.get(row)?;
        let (start, length) = (row.start as usize, usize::try_from(row.key).ok()?);
        self.blob.get(start..start + length)
    }

    /// Value of a row, where `kept` gives the bytes that the caller keeps; None for a null value.
    fn value<'a>(&'a self, row: &Row, kept: impl Fn(usize) -> Option<&'a [u8]>) -> Option<&'a [u8]> {
        if row.kept != COPIED {
            return kept(row.kept as usize);
        }
        let start = row.start as usize + row.key.max(0) as usize;
        let length = usize::try_from(row.value).ok()?;
        self.blob.get(start..start + length)
    }

    /// Key and value of a row that exists.
    #[inline(always)]
    pub fn fields<'a>(&'a self, row: usize, kept: impl Fn(usize) -> Option<&'a [u8]>, headers: &'a [u8]) -> Fields<'a> {
        let value = self.rows.get(row).and_then(|row| self.value(row, kept));
        Fields { key: self.key(row), value, headers }
    }

    /// Partition of each record by its key; -1 for a record without one.
    pub fn partitions(&self, count: u32) -> impl ExactSizeIterator<Item = i32> + '_ {
        (0..self.rows.len()).map(move |row| self.key(row).map_or(-1, |key| hashes::partition(key, count) as i32))
    }
}
