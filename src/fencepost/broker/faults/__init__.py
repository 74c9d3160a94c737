"""Faults on demand, for tests: of requests and of the disk."""
