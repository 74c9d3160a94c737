"""The source, and what its progress tells."""
