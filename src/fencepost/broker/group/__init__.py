"""fencepost.broker.group."""
