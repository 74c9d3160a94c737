"""Share groups (KIP-932): members and their partitions. `broker/share` has the delivery state of records."""
