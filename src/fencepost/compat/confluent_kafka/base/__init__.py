"""Errors, values, settings and other parts that the clients of this package share."""
