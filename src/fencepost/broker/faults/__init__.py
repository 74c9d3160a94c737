"""Fault injection for tests: faults of requests and of the disk."""
