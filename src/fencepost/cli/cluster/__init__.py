"""Commands about a cluster, any Kafka's: thin shells over the clients."""
