"""Record batches: header, records, and the ways to read and write them."""
