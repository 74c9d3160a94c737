//! Tests of the loops without Python. Any input is either read or refused with a code, and never causes a panic.

use crate::hashes;
use crate::produce;
use crate::records::{self, check, decode, find, Fields, RecordError, Strings};
use crate::rows::{Rows, Value};

/// A key or value; None is null.
type NullableBytes = Option<Vec<u8>>;

/// SplitMix64, a random number generator with a fixed seed, so that failures are reproducible.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn bytes(&mut self, most: usize) -> Vec<u8> {
        let size = self.below(most + 1);
        (0..size).map(|_| self.next() as u8).collect()
    }
}

/// One record: timestamp delta 3, offset delta 0, key "k", value null, header "h" with a null value. Its bytes follow
/// from the description of the format.
const RECORD: [u8; 11] = [20, 0, 6, 0, 2, b'k', 1, 2, 2, b'h', 1];

#[test]
fn a_record_of_the_format_description_is_read_and_written() {
    let found = check(&RECORD, 1, 100).unwrap();
    assert_eq!((found.smallest, found.largest, found.without_key), (103, 103, -1));
    assert_eq!(find(&RECORD, 1, 100, 103, 103, 0), Ok(Some((103, 0))));
    assert_eq!(find(&RECORD, 1, 100, 104, i64::MAX, 0), Ok(None));
    let fields = |_| Fields { key: Some(b"k"), value: None, headers: &[2, 2, b'h', 1] };
    let mut out = [0; RECORD.len() - 1];
    let size = records::measure_rows(1, fields, &[100]).unwrap();
    assert_eq!(size, RECORD.len());
    assert!(records::write_rows(1, fields, &[100], &mut out).is_err());
    let mut out = [0; RECORD.len()];
    records::write_rows(1, fields, &[100], &mut out).unwrap();
    assert_eq!(out[3..], RECORD[3..]); // the timestamp delta is now relative to this record, so it is 0
    assert_eq!(out[2], 0);
}

#[test]
fn every_cut_and_every_changed_byte_is_read_or_refused() {
    let section = RECORD.to_vec();
    for cut in 0..section.len() {
        assert!(check(&section[..cut], 1, 0).is_err());
        assert!(check(&section[cut..], 1, 0).is_err() || cut == 0);
    }
    for at in 0..section.len() {
        for byte in 0..=255 {
            let mut changed = section.clone();
            changed[at] = byte;
            let _ = (check(&changed, 1, i64::MAX), find(&changed, 1, i64::MIN, 0, i64::MAX, -1));
        }
    }
}

#[test]
fn hostile_counts_and_batches_are_refused_before_memory_is_taken() {
    let blob = RECORD;
    for count in [i64::MIN, -1, 2, i64::MAX] {
        assert!(check(&blob, count, 0).is_err());
        assert!(records::capacity(&blob, &[(0, 11, count, 0, 0, 0, None)]).is_err());
    }
    for (start, end) in [(-1, 11), (0, 12), (11, 0), (i64::MIN, i64::MAX), (0, i64::MAX)] {
        assert!(records::capacity(&blob, &[(start, end, 1, 0, 0, 0, None)]).is_err());
    }
    let mut out = [0; records::COLUMN_BYTES];
    let refused = decode(&blob, &[(0, 11, 1, i64::MAX, 0, 0, None)], 0, &mut out);
    assert_eq!(refused, (1, None)); // the largest possible offset
    assert_eq!(
        decode(&blob, &[(0, 11, 1, 0, 0, -1, None)], 0, &mut out).1,
        Some(RecordError { code: records::BAD_OFFSET, row: 0 })
    );
    assert_eq!(
        decode(&blob, &[(0, 11, 1, 0, 0, 0, None)], 0, &mut []).1,
        Some(RecordError { code: records::OUT_OF_BOUNDS, row: 0 })
    );
}

#[test]
fn any_bytes_are_read_or_refused() {
    let mut random = Random(1);
    for _ in 0..200_000 {
        let mut section = if random.below(2) == 0 { random.bytes(80) } else { RECORD.repeat(1 + random.below(4)) };
        for _ in 0..random.below(4) {
            if !section.is_empty() {
                let at = random.below(section.len());
                section[at] = random.next() as u8;
            }
        }
        let count = random.below(6) as i64;
        let base = random.next() as i64;
        let _ = (check(&section, count, base), find(&section, count, base, 0, i64::MAX, 0));
        let batch = (0, section.len() as i64, count, random.next() as i64, base, i64::from(i32::MAX), None);
        if let Ok(rows) = records::capacity(&section, &[batch]) {
            let mut out = vec![0; rows * records::COLUMN_BYTES];
            assert!(decode(&section, &[batch], i64::MIN, &mut out).0 <= rows);
        }
    }
}

#[test]
fn spans_outside_of_their_blob_are_refused() {
    let strings = Strings { blob: b"abc", ..Strings::default() };
    assert_eq!(strings.cut(0, 3), Ok(Some(&b"abc"[..])));
    assert_eq!(strings.cut(i64::MAX, 0), Ok(Some(&b""[..])));
    assert_eq!(strings.cut(i64::MIN, i32::MIN), Ok(None));
    for (start, length) in [(1, 3), (-1, 1), (i64::MAX, 1), (i64::MIN, 1), (0, i32::MAX)] {
        assert_eq!(strings.cut(start, length), Err(records::OUTSIDE_BLOB));
    }
}

#[test]
fn hashes_are_the_published_ones() {
    // Kafka's UtilsTest.testMurmur2, and the sanity checks of xxHash.
    assert_eq!(crate::hashes::murmur2(b"foobar") as i32, -790332482);
    assert_eq!(crate::hashes::murmur2(b"21") as i32, -973932308);
    assert_eq!(crate::hashes::xxh64(b"abc"), 0x44bc_2cf5_ad77_0999);
}

/// A Produce request v9 with this batch for partition 5 of topic "t", client id "c", without a transactional id.
fn request(batch: &[u8]) -> Vec<u8> {
    let mut frame =
        vec![0, 0, 0, 9, 0, 0, 0, 7, 0, 1, b'c', 0, 0, 0xff, 0xff, 0, 0, 5, 0xdc, 2, 2, b't', 2, 0, 0, 0, 5];
    frame.push(batch.len() as u8 + 1);
    frame.extend_from_slice(batch);
    frame.extend_from_slice(&[0, 0, 0]);
    frame
}

fn batch() -> Vec<u8> {
    let mut batch = vec![0; 8];
    batch.extend_from_slice(&(49 + RECORD.len() as i32).to_be_bytes());
    batch.extend_from_slice(&[0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]); // leader epoch, magic, CRC, attributes, last delta
    batch.extend_from_slice(&100i64.to_be_bytes());
    batch.extend_from_slice(&103i64.to_be_bytes());
    batch.extend_from_slice(&[0xff; 14]); // no producer
    batch.extend_from_slice(&1i32.to_be_bytes());
    batch.extend_from_slice(&RECORD);
    let crc = crc32c::crc32c(&batch[21..]);
    batch[17..21].copy_from_slice(&crc.to_be_bytes());
    batch
}

#[test]
fn a_produce_request_is_read_and_answered() {
    let frame = request(&batch());
    let read = produce::decode_request(&frame).unwrap();
    assert_eq!((read.version, read.correlation_id, read.acks, read.timeout_ms), (9, 7, -1, 1500));
    assert_eq!((read.client_id, read.transactional_id), (Some("c"), None));
    let only = &read.batches[0];
    assert_eq!((only.topic, only.partition), (produce::Topic::Name("t"), 5));
    assert_eq!(&frame[only.start..only.end], &batch()[..]);
    assert_eq!(only.checked.as_ref().map(|found| found.largest), Some(103));
    let answer = produce::encode_response(9, 7, &[(only.topic, (5, 258, -1, 0))]);
    let expected = [
        &[0, 0, 0, 48, 0, 0, 0, 7, 0, 2, 2, b't', 2, 0, 0, 0, 5, 0, 0][..],
        &258i64.to_be_bytes(),
        &[0xff; 8],
        &[0; 8],
        &[1, 0, 0, 0, 0, 0, 0, 0, 0],
    ];
    assert_eq!(answer, expected.concat());
}

#[test]
fn every_cut_and_every_changed_byte_of_a_request_is_read_or_declined() {
    let frame = request(&batch());
    for cut in 0..frame.len() {
        assert!(produce::decode_request(&frame[..cut]).is_none());
    }
    let mut declined = 0;
    for at in 0..frame.len() {
        for byte in 0..=255 {
            let mut changed = frame.clone();
            changed[at] = byte;
            declined += usize::from(produce::decode_request(&changed).is_none());
        }
    }
    assert!(declined > 60 * 255); // at least the changes within the batch
}

#[test]
fn rows_have_the_fields_that_were_added() {
    let mut random = Random(11);
    let mut rows = Rows::default();
    let mut wanted: Vec<(NullableBytes, NullableBytes)> = Vec::new();
    let mut referenced: Vec<Vec<u8>> = Vec::new();
    for row in 0..3_000 {
        let key = (random.below(3) > 0).then(|| random.bytes(20));
        let value = (random.below(4) > 0).then(|| random.bytes(60));
        let field = match &value {
            Some(bytes) if random.below(2) == 0 => {
                referenced.push(bytes.clone());
                Value::Referenced(bytes.len(), referenced.len() - 1)
            }
            other => Value::Copied(other.as_deref()),
        };
        assert_eq!(rows.add(key.as_deref(), field), Some(row));
        wanted.push((key, value));
    }
    assert!(rows.has_keys());
    let partitions: Vec<i32> = rows.partitions(7).collect();
    for (row, (key, value)) in wanted.iter().enumerate() {
        let found = rows.fields(row, |index| referenced.get(index).map(Vec::as_slice), b"");
        assert_eq!((found.key, found.value), (key.as_deref(), value.as_deref()));
        assert_eq!(partitions[row], key.as_ref().map_or(-1, |key| hashes::partition(key, 7) as i32));
    }
    let after_last = rows.fields(rows.len(), |_| None, b"");
    assert_eq!((after_last.key, after_last.value), (None, None));
}

#[test]
fn rows_refuse_lengths_that_no_record_has() {
    let mut rows = Rows::default();
    assert_eq!(rows.add(None, Value::Referenced(i32::MAX as usize + 1, 0)), None);
    assert_eq!(rows.add(None, Value::Referenced(1, u32::MAX as usize + 1)), None);
    assert!(rows.is_empty() && !rows.has_keys());
}
