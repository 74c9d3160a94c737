"""fencepost.broker.api."""
