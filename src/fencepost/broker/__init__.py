"""fencepost.broker."""
