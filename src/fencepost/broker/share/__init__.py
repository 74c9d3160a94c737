"""Share groups (KIP-932): what their members are handed out of the partitions, and what they said of it."""
