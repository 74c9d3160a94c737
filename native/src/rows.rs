//! Records that wait to be encoded. Their keys and small values are stored one after another in one blob.

use crate::hashes;
use crate::records::Fields;

/// Positions of a record's fields. Its key, and then its value if that is copied, begin at `start` in the blob. `key`
/// and `value` are lengths in bytes; -1 is null.
#[derive(Clone, Copy)]
struct Row {
    start: u32,
    key: i32,
    value: i32,
    referenced: u32,
}

/// Stored in `referenced` instead of an index: the value is in the blob, or null.
const IN_BLOB: u32 = u32::MAX;

#[derive(Default)]
pub struct Rows {
    blob: Vec<u8>,
    rows: Vec<Row>,
    has_keys: bool,
}

/// A value to add: bytes to copy, or the length and the index of a value that the caller stores.
#[derive(Clone, Copy)]
pub enum Value<'a> {
    Copied(Option<&'a [u8]>),
    Referenced(usize, usize),
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

    /// Add a record, and return its row. Returns None if there is no memory, or if a length or an index is too large.
    #[inline(always)]
    pub fn add(&mut self, key: Option<&[u8]>, value: Value<'_>) -> Option<usize> {
        let (copied, length, referenced) = match value {
            Value::Copied(bytes) => (bytes.unwrap_or_default(), length_of(bytes)?, IN_BLOB),
            Value::Referenced(length, index) => {
                (&[][..], i32::try_from(length).ok()?, u32::try_from(index).ok().filter(|index| *index != IN_BLOB)?)
            }
        };
        let row = Row { start: u32::try_from(self.blob.len()).ok()?, key: length_of(key)?, value: length, referenced };
        let key = key.unwrap_or_default();
        self.blob.try_reserve(key.len().checked_add(copied.len())?).ok()?;
        self.rows.try_reserve(1).ok()?;
        self.blob.extend_from_slice(key);
        self.blob.extend_from_slice(copied);
        self.rows.push(row);
        self.has_keys |= row.key >= 0;
        Some(self.rows.len() - 1)
    }

    /// The key of a row. None if the key is null or the row does not exist.
    pub fn key(&self, row: usize) -> Option<&[u8]> {
        let row = self.rows.get(row)?;
        let (start, length) = (row.start as usize, usize::try_from(row.key).ok()?);
        self.blob.get(start..start + length)
    }

    /// The value of a row, or None if it is null. `referenced` returns the bytes of a value that the caller stores.
    fn value<'a>(&'a self, row: &Row, referenced: impl Fn(usize) -> Option<&'a [u8]>) -> Option<&'a [u8]> {
        if row.referenced != IN_BLOB {
            return referenced(row.referenced as usize);
        }
        let start = row.start as usize + row.key.max(0) as usize;
        let length = usize::try_from(row.value).ok()?;
        self.blob.get(start..start + length)
    }

    /// Key and value of a row, both None if the row does not exist.
    #[inline(always)]
    pub fn fields<'a>(
        &'a self,
        row: usize,
        referenced: impl Fn(usize) -> Option<&'a [u8]>,
        headers: &'a [u8],
    ) -> Fields<'a> {
        let value = self.rows.get(row).and_then(|row| self.value(row, referenced));
        Fields { key: self.key(row), value, headers }
    }

    /// The partition of each record by its key; -1 for a record without a key.
    pub fn partitions(&self, count: u32) -> impl ExactSizeIterator<Item = i32> + '_ {
        (0..self.rows.len()).map(move |row| self.key(row).map_or(-1, |key| hashes::partition(key, count) as i32))
    }
}
