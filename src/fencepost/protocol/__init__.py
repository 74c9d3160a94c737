"""fencepost.protocol."""
