"""Share groups (KIP-932): their members and what these are to read; not how far: that is `broker/share`."""
