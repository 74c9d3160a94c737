"""`fencepost ui`: a page about a cluster, any Kafka's, for people."""
