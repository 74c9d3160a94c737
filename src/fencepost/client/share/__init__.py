"""Share groups (KIP-932): any number of members read the same partitions, and acknowledge each record."""
