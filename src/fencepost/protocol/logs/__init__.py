"""Records of the internal topics in Kafka's schemas."""
