"""Share groups (KIP-932): what is read, what is said of it, and how far groups have come."""
