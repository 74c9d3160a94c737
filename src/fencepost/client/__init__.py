"""fencepost.client."""
