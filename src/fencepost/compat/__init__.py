"""The classes of other Kafka clients over Fencepost's own, for programs that move by one import."""
