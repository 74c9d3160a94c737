"""Groups with the consumer protocol (KIP-848)."""
