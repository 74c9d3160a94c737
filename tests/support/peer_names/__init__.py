"""The names of other clients, and what each is in Fencepost."""
