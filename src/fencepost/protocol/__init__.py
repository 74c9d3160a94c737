"""The Kafka wire protocol: frames, messages, record batches and the records of internal topics."""
