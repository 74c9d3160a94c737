"""APIs of records: produce, fetch, offsets of a log."""
