"""The torture test (`fencepost torture`): clients of any Kafka under faults, and a history of their answers."""
