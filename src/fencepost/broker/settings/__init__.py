"""Settings of the broker, topics and groups: Kafka's names, defaults, types and checks."""
