"""fencepost.spark."""
