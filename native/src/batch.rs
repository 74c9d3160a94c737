//! The header of a record batch (format v2).

/// Size of a header in bytes.
pub const HEADER_BYTES: usize = 61;
/// Bytes of a batch that precede its length field's count: base offset and the length itself.
pub const LENGTH_PREFIX_BYTES: usize = 12;
pub const MAGIC_AT: usize = 16;
pub const MAGIC: i8 = 2;
const CRC_AT: usize = 17;
const CRC_FROM: usize = 21;

pub const CODEC_MASK: i16 = 0x07;
pub const LOG_APPEND_TIME: i16 = 0x08;
pub const TRANSACTIONAL: i16 = 0x10;
pub const CONTROL: i16 = 0x20;
pub const DELETE_HORIZON: i16 = 0x40;

/// Reads values from the front of a byte slice. A read past the end returns None.
pub struct Reader<'a> {
    pub rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(bytes)
    }

    pub fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (bytes, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(*bytes)
    }

    fn int8(&mut self) -> Option<i8> {
        self.array().map(i8::from_be_bytes)
    }

    pub fn int16(&mut self) -> Option<i16> {
        self.array().map(i16::from_be_bytes)
    }

    pub fn int32(&mut self) -> Option<i32> {
        self.array().map(i32::from_be_bytes)
    }

    fn int64(&mut self) -> Option<i64> {
        self.array().map(i64::from_be_bytes)
    }
}

/// The fields of a header, in wire order.
#[derive(Debug, PartialEq, Eq)]
pub struct Header {
    pub base_offset: i64,
    pub batch_length: i32,
    pub leader_epoch: i32,
    pub magic: i8,
    pub crc: u32,
    pub attributes: i16,
    pub last_offset_delta: i32,
    pub base_timestamp: i64,
    pub max_timestamp: i64,
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub base_sequence: i32,
    pub count: i32,
}

impl Header {
    /// Parse the header at the front of `bytes`. Returns None if there are too few bytes.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader { rest: bytes };
        Some(Self {
            base_offset: reader.int64()?,
            batch_length: reader.int32()?,
            leader_epoch: reader.int32()?,
            magic: reader.int8()?,
            crc: reader.array().map(u32::from_be_bytes)?,
            attributes: reader.int16()?,
            last_offset_delta: reader.int32()?,
            base_timestamp: reader.int64()?,
            max_timestamp: reader.int64()?,
            producer_id: reader.int64()?,
            producer_epoch: reader.int16()?,
            base_sequence: reader.int32()?,
            count: reader.int32()?,
        })
    }

    /// Write this header over the first bytes of `batch`. The length and the CRC are computed from `batch`; the fields
    /// `batch_length` and `crc` are ignored. Returns None if `batch` is shorter than a header, or too long for the
    /// length field.
    pub fn seal(&self, batch: &mut [u8]) -> Option<()> {
        let length = i32::try_from(batch.len().checked_sub(LENGTH_PREFIX_BYTES)?).ok()?;
        let mut rest = batch.get_mut(..HEADER_BYTES)?;
        let fields: [&[u8]; 13] = [
            &self.base_offset.to_be_bytes(),
            &length.to_be_bytes(),
            &self.leader_epoch.to_be_bytes(),
            &self.magic.to_be_bytes(),
            &[0; 4],
            &self.attributes.to_be_bytes(),
            &self.last_offset_delta.to_be_bytes(),
            &self.base_timestamp.to_be_bytes(),
            &self.max_timestamp.to_be_bytes(),
            &self.producer_id.to_be_bytes(),
            &self.producer_epoch.to_be_bytes(),
            &self.base_sequence.to_be_bytes(),
            &self.count.to_be_bytes(),
        ];
        for field in fields {
            let (room, after) = rest.split_at_mut_checked(field.len())?;
            room.copy_from_slice(field);
            rest = after;
        }
        let crc = crc32c::crc32c(&batch[CRC_FROM..]);
        batch[CRC_AT..CRC_FROM].copy_from_slice(&crc.to_be_bytes());
        Some(())
    }

    /// Size of the whole batch in bytes; None if its length is negative.
    pub fn size(&self) -> Option<usize> {
        LENGTH_PREFIX_BYTES.checked_add(usize::try_from(self.batch_length).ok()?)
    }

    /// True if the stored CRC matches the batch. The batch must be at least as long as a header.
    pub fn has_crc_of(&self, batch: &[u8]) -> bool {
        crc32c::crc32c(&batch[CRC_FROM..]) == self.crc
    }
}
