"""APIs of groups and committed offsets."""
