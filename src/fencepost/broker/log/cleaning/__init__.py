"""Retention and compaction of one log."""
