"""fencepost.broker.log."""
