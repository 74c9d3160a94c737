"""fencepost.check."""
