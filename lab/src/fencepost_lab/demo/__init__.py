"""The demo: real flights through Kafka and Spark exactly once while processes are killed, checked by another client."""
