"""Counters and gauges of the broker, and their HTTP endpoint."""
