"""Groups: decisions, the one replayed state, committed offsets."""
