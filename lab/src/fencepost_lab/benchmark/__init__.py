"""Benchmarks of clients at a Kafka cluster: clients in turn, results as ratios."""
