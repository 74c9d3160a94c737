"""Membership in consumer groups: both protocols, assignors, committed offsets."""
