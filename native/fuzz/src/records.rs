//! Fuzz target: any bytes as a records section. A section that passes `check` is decoded completely.
#![no_main]

use fencepost_native::records::{check, decode, find, COLUMN_BYTES};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, i64, &[u8])| {
    let (count, base, section) = (i64::from(input.0), input.1, input.2);
    let checked = check(section, count, base);
    let found = find(section, count, base, i64::MIN, i64::MAX, 0);
    let batches = [(0, section.len() as i64, count, 0, base, i64::from(u8::MAX), None)];
    let mut out = vec![0; count as usize * COLUMN_BYTES];
    let (rows, error) = decode(section, &batches, 0, &mut out);
    assert!(rows as i64 <= count);
    if checked.is_ok() {
        assert_eq!((rows as i64, error), (count, None));
        assert_eq!(found.map(|one| one.is_some()), Ok(count > 0));
    }
});
