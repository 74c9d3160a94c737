"""fencepost_lab.check."""
