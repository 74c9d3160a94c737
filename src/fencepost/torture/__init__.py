"""Clients under faults against any Kafka, and a history of what they were told: `fencepost torture`."""
