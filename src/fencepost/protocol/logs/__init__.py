"""Records of the internal topics, in Kafka's own schemas."""
