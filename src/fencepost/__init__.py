"""Fencepost: exactly-once Kafka for Python and Spark."""
