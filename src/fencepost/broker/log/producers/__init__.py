"""Producer state of a partition, and its snapshots."""
