"""Errors, values and settings, which all clients of this package share."""
