"""fencepost.cli."""
