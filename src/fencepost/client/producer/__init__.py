"""The producer's core: batches, sending, transactions."""
