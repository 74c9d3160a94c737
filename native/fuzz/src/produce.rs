//! Fuzz target: any bytes as a Produce request. They are decoded or declined. All positions lie in the frame, and the
//! response names all batches.
#![no_main]

use fencepost_native::produce::{decode_request, encode_response};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|frame: &[u8]| {
    let Some(request) = decode_request(frame) else { return };
    assert!(!request.batches.is_empty());
    let mut end_before = 0;
    let mut results = Vec::new();
    for batch in &request.batches {
        assert!(end_before < batch.start && batch.start < batch.end && batch.end <= frame.len());
        assert_eq!(batch.header.batch_length as usize + 12, batch.end - batch.start);
        assert_eq!(batch.header.last_offset_delta, batch.header.count - 1);
        assert_eq!(batch.checked.is_none(), batch.header.attributes & 7 != 0);
        end_before = batch.end;
        results.push((batch.topic, (batch.partition, 1, -1, 0)));
    }
    let response = encode_response(request.version, request.correlation_id, &results);
    assert_eq!(response[..4], (response.len() as i32 - 4).to_be_bytes());
    assert_eq!(response[4..8], request.correlation_id.to_be_bytes());
});
