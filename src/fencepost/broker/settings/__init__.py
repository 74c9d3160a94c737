"""Settings of the broker and of topics: Kafka's names, defaults, types and checks."""
