"""The laboratory's commands. Their rows are in `fencepost.cli.commands`."""
