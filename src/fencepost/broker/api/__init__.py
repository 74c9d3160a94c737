"""The APIs: one file for each key."""
