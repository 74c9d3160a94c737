"""Commands for clusters of any Kafka, as thin layers over the clients."""
