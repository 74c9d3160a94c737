"""Share groups (KIP-932): records one by one, among any number of members, each to be answered for."""
