"""The administrative client of confluent-kafka's interface."""
