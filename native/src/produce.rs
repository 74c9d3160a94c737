//! Reads Produce requests in their common form, with one pass over the frame.
//!
//! `decode_request` returns None for every other form and for malformed bytes. Python then reads the request, and
//! chooses the error codes. This module checks the format only: the broker may still refuse a well-formed batch because
//! of the settings of its topic or the state of its producer.

use crate::batch::{Header, Reader, CODEC_MASK, CONTROL, DELETE_HORIZON, HEADER_BYTES, MAGIC, TRANSACTIONAL};
use crate::records::{self, Checked};

const FIRST_VERSION: i16 = 3;
const LAST_VERSION: i16 = 13;
const FIRST_WITH_LOG_START: i16 = 5;
const FIRST_WITH_ERRORS: i16 = 8;
const FIRST_FLEXIBLE: i16 = 9;
const FIRST_WITH_TOPIC_ID: i16 = 13;
const ID_BYTES: usize = 16;
/// Limits that bound the time of one pass: the number of batches, and the size in bytes of a frame with several
/// batches.
const MAX_BATCHES: usize = 1000;
const MAX_BYTES_OF_SEVERAL: usize = 4 << 20;

const LAST_CODEC: i16 = 4;

impl<'a> Reader<'a> {
    fn unsigned(&mut self) -> Option<usize> {
        let (mut value, mut shift) = (0u64, 0);
        loop {
            let [byte] = self.array()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return u32::try_from(value).ok().map(|value| value as usize);
            }
            shift += 7;
            if shift > 28 {
                return None;
            }
        }
    }

    /// A compact length, decoded from its wire form `length + 1`. None for null.
    fn compact(&mut self) -> Option<usize> {
        self.unsigned()?.checked_sub(1)
    }

    fn no_tags(&mut self) -> Option<()> {
        (self.array()? == [0]).then_some(())
    }

    fn text(&mut self, length: usize) -> Option<&'a str> {
        std::str::from_utf8(self.bytes(length)?).ok()
    }

    /// A string with a 16-bit length. `Some(None)` is a null string.
    fn nullable_text(&mut self) -> Option<Option<&'a str>> {
        match usize::try_from(self.int16()?) {
            Ok(length) => self.text(length).map(Some),
            Err(_) => Some(None),
        }
    }

    fn compact_nullable_text(&mut self) -> Option<Option<&'a str>> {
        match self.unsigned()?.checked_sub(1) {
            Some(length) => self.text(length).map(Some),
            None => Some(None),
        }
    }
}

/// A topic, by name (up to v12) or by id (from v13).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Topic<'a> {
    Name(&'a str),
    Id([u8; ID_BYTES]),
}

#[derive(Debug, PartialEq, Eq)]
pub struct Batch<'a> {
    pub topic: Topic<'a>,
    pub partition: i32,
    /// Position of the batch in the frame, in bytes.
    pub start: usize,
    pub end: usize,
    pub header: Header,
    /// Facts about the records; None if the batch is compressed.
    pub checked: Option<Checked>,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Request<'a> {
    pub version: i16,
    pub correlation_id: i32,
    pub client_id: Option<&'a str>,
    pub transactional_id: Option<&'a str>,
    pub acks: i16,
    pub timeout_ms: i32,
    pub batches: Vec<Batch<'a>>,
}

/// Check that these bytes are exactly one well-formed batch of a producer. Returns its header, and facts about its
/// records unless they are compressed.
pub fn check_batch(batch: &[u8]) -> Option<(Header, Option<Checked>)> {
    let header = Header::of(batch)?;
    let attributes = header.attributes;
    let has_whole_length = header.size()? == batch.len();
    let has_valid_counts = header.count > 0 && header.last_offset_delta == header.count - 1 && header.base_offset == 0;
    let has_valid_sequence = match header.producer_id {
        0.. => header.base_sequence >= 0,
        _ => attributes & TRANSACTIONAL == 0,
    };
    let has_client_attributes = attributes & (CONTROL | DELETE_HORIZON) == 0 && attributes & CODEC_MASK <= LAST_CODEC;
    if header.magic != MAGIC || !has_whole_length || !has_valid_counts || !has_valid_sequence || !has_client_attributes
    {
        return None;
    }
    // A fuzzer cannot guess a checksum, so it skips this check.
    if !cfg!(fuzzing) && !header.has_crc_of(batch) {
        return None;
    }
    if attributes & CODEC_MASK != 0 {
        return Some((header, None));
    }
    let checked = records::check(&batch[HEADER_BYTES..], i64::from(header.count), header.base_timestamp).ok()?;
    Some((header, Some(checked)))
}

/// Decode a request with its header. Returns None unless it has the common form.
pub fn decode_request(frame: &[u8]) -> Option<Request<'_>> {
    let mut reader = Reader { rest: frame };
    if reader.int16()? != 0 {
        return None;
    }
    let version = reader.int16()?;
    if !(FIRST_VERSION..=LAST_VERSION).contains(&version) {
        return None;
    }
    let correlation_id = reader.int32()?;
    let client_id = reader.nullable_text()?;
    let is_flexible = version >= FIRST_FLEXIBLE;
    let transactional_id = if is_flexible {
        reader.no_tags()?;
        reader.compact_nullable_text()?
    } else {
        reader.nullable_text()?
    };
    let (acks, timeout_ms) = (reader.int16()?, reader.int32()?);
    let mut batches = Vec::new();
    let length = |reader: &mut Reader<'_>| match is_flexible {
        true => reader.compact(),
        false => usize::try_from(reader.int32()?).ok(),
    };
    for _ in 0..length(&mut reader)? {
        let topic = if version >= FIRST_WITH_TOPIC_ID {
            Topic::Id(reader.array()?)
        } else if is_flexible {
            Topic::Name(reader.compact_nullable_text()??)
        } else {
            Topic::Name(reader.nullable_text()??)
        };
        for _ in 0..length(&mut reader)? {
            if batches.len() == MAX_BATCHES || (batches.len() == 1 && frame.len() > MAX_BYTES_OF_SEVERAL) {
                return None;
            }
            let partition = reader.int32()?;
            let size = length(&mut reader)?;
            let start = frame.len() - reader.rest.len();
            let (header, checked) = check_batch(reader.bytes(size)?)?;
            batches.push(Batch { topic, partition, start, end: start + size, header, checked });
            if is_flexible {
                reader.no_tags()?;
            }
        }
        if is_flexible {
            reader.no_tags()?;
        }
    }
    if is_flexible {
        reader.no_tags()?;
    }
    let is_whole = reader.rest.is_empty() && !batches.is_empty();
    is_whole.then_some(Request { version, correlation_id, client_id, transactional_id, acks, timeout_ms, batches })
}

/// Result of an append: partition, base offset, append time in ms (or -1), log start offset.
pub type Appended = (i32, i64, i64, i64);

/// Encode the response to a request whose batches were all appended, as a frame. Consecutive results of the same topic
/// share one entry.
pub fn encode_response(version: i16, correlation_id: i32, results: &[(Topic<'_>, Appended)]) -> Vec<u8> {
    let is_flexible = version >= FIRST_FLEXIBLE;
    let mut out = Vec::with_capacity(64 + results.len() * 40);
    let length = |out: &mut Vec<u8>, count: usize| match is_flexible {
        true => write_unsigned(out, count + 1),
        false => out.extend_from_slice(&(count as i32).to_be_bytes()),
    };
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&correlation_id.to_be_bytes());
    if is_flexible {
        out.push(0);
    }
    let topics: Vec<_> = results.chunk_by(|left, right| left.0 == right.0).collect();
    length(&mut out, topics.len());
    for topic in topics {
        match topic[0].0 {
            Topic::Id(id) => out.extend_from_slice(&id),
            Topic::Name(name) if is_flexible => {
                write_unsigned(&mut out, name.len() + 1);
                out.extend_from_slice(name.as_bytes());
            }
            Topic::Name(name) => {
                out.extend_from_slice(&(name.len() as i16).to_be_bytes());
                out.extend_from_slice(name.as_bytes());
            }
        }
        length(&mut out, topic.len());
        for (_, (partition, base_offset, append_time_ms, log_start_offset)) in topic {
            out.extend_from_slice(&partition.to_be_bytes());
            out.extend_from_slice(&0i16.to_be_bytes());
            out.extend_from_slice(&base_offset.to_be_bytes());
            out.extend_from_slice(&append_time_ms.to_be_bytes());
            if version >= FIRST_WITH_LOG_START {
                out.extend_from_slice(&log_start_offset.to_be_bytes());
            }
            if is_flexible {
                out.extend_from_slice(&[1, 0, 0]); // no record errors, no message, no tags
            } else if version >= FIRST_WITH_ERRORS {
                out.extend_from_slice(&[0, 0, 0, 0, 0xff, 0xff]); // no record errors, no message
            }
        }
        if is_flexible {
            out.push(0);
        }
    }
    out.extend_from_slice(&[0; 4]); // throttle time 0
    if is_flexible {
        out.push(0);
    }
    let size = (out.len() - 4) as i32;
    out[..4].copy_from_slice(&size.to_be_bytes());
    out
}

fn write_unsigned(out: &mut Vec<u8>, mut value: usize) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}
