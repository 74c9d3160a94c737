"""What a partition knows of idempotent producers, and its snapshots."""
